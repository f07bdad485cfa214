// How tables and charts of a comparison show the metric of the model's first head, and which values
// are better. Plain data; any thread.
#pragma once

#include <optional>
#include <string>

namespace pushpull {

struct MetricStyle {
  std::string name = "accuracy";
  double scale = 100.0;  // factor of a value as users read it
  std::string unit = "%";
  int digits = 2;  // after the point
  bool higher_is_better = true;
  bool counts = true;  // the value is a share of the targets, from 0 to 1

  // Returns the target as users read it: "97% test accuracy", "6.5 test perplexity".
  std::string target_text(double target) const;
  // Returns the value as users read it: "97.25%", "6.42".
  std::string value_text(double value) const;
  // Returns "Accuracy".
  std::string title() const;
};

// Returns the style of a metric by its name; an empty or unknown name is that of accuracy.
MetricStyle style_of(const std::string& metric);

}  // namespace pushpull
