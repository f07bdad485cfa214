// The job that `pushpull top` watches, as a state machine: when to ask its coordinator, and what to say while there is no
// answer, or after the coordinator has changed. Does no I/O and reads no clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace pushpull {

class TopJob {
 public:
  //   interval_ms: between an answer and the next question.
  explicit TopJob(int64_t interval_ms) : interval_ms_(interval_ms) {}

  // Returns true if a question should be sent; it is then pending until it is answered, has failed, or is given up.
  bool ask(int64_t now_ms);
  // Returns true if the pending question should be given up: its connection may be of a coordinator that is gone.
  bool give_up(int64_t now_ms);
  void answered(int64_t now_ms, nlohmann::ordered_json document);
  // why: of a coordinator that refuses the key, or speaks another protocol.
  void failed(int64_t now_ms, const std::string& why);

  // Returns the newest answer.
  const std::optional<nlohmann::ordered_json>& document() const { return document_; }
  // Returns a line about the coordinator, or "" if it answers as it did.
  std::string trouble(int64_t now_ms) const;

 private:
  const int64_t interval_ms_;
  std::optional<int64_t> asked_ms_;  // the pending question
  int64_t next_ms_ = 0;
  int64_t silent_since_ms_ = -1;  // since the newest answer, or the first question
  std::string why_;               // of the newest failure
  std::optional<nlohmann::ordered_json> document_;
  std::string news_;  // the coordinator has changed
  int64_t news_ms_ = 0;
};

}  // namespace pushpull
