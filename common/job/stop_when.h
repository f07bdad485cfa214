// The rule for early stopping: `stop-when = [HEAD/]METRIC:PATIENCE`. Plain value; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace pushpull {

// Ends a run once `patience` evaluations in a row have brought no better value of a measure.
struct StopWhen {
  std::string head;      // of the model; "" for the first
  std::string metric;    // "loss", "metric" (the head's own), or that metric's word
  int64_t patience = 0;  // 0: the run never stops early

  bool on() const { return patience > 0; }
  // Returns the measure as the key names it: "loss", "start/exact-match"; "metric" without a rule.
  std::string measure() const;

  // Reads "loss:3", "start/exact-match:5" or "none". Throws Error(kUsage).
  static StopWhen parse(const std::string& text);
  std::string to_string() const;
  friend bool operator==(const StopWhen&, const StopWhen&) = default;
};

// Completes "must be ..." for a wrong rule.
extern const char* const kStopWhenWords;

}  // namespace pushpull
