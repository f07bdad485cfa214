// The factors of the losses of a model's heads, as a job gives them: the key `head-weights`. Plain
// data; any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace pushpull {

struct HeadWeights {
  // Name of a head and the factor of its loss in training, a number >= 0. Each name occurs once.
  std::vector<std::pair<std::string, double>> weights;

  // Reads "start:1,class:0.5"; "" has no weights. Throws Error(kUsage).
  static HeadWeights parse(const std::string& text);
  std::string to_string() const;
  friend bool operator==(const HeadWeights&, const HeadWeights&) = default;
};

}  // namespace pushpull
