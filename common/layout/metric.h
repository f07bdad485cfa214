// The metrics of a model: what each of its heads measures, and sums of it that add up over parts of
// a data set; the factors of the heads' losses. Plain data; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pushpull {

// The factors of the losses of a model's heads, as a job gives them: the key `head-weights`. Plain
// data; any thread.
struct HeadWeights {
  // Name of a head and the factor of its loss in training, a number >= 0. Each name occurs once.
  std::vector<std::pair<std::string, double>> weights;

  // Reads "start:1,class:0.5"; "" has no weights. Throws Error(kUsage).
  static HeadWeights parse(const std::string& text);
  std::string to_string() const;
  friend bool operator==(const HeadWeights&, const HeadWeights&) = default;
};

// kValue and kCost have no sums of their own: a worker's program computes the value from the named sums of
// the whole evaluation. A smaller cost is better.
enum class Metric { kAccuracy, kExactMatch, kPerplexity, kMeanSquaredError, kValue, kCost };

// Returns the metric's name on the wire and in files: "accuracy", "exact match", "perplexity",
// "mean squared error", "value", "cost".
const char* to_string(Metric metric);
// Returns the metric of this name, or nothing if there is none.
std::optional<Metric> metric_of(const std::string& name);
// Returns whether the metric counts targets: its sum is a whole number from 0 to the counted
// targets, and its value a share, shown in percent.
bool counts_targets(Metric metric);
// Returns whether a program computes the value by a formula.
bool is_formula(Metric metric);
// Returns whether a larger value is the better one.
bool higher_is_better(Metric metric);

constexpr int64_t kMaxTargets = int64_t{1} << 20;  // of a sample

// A head of a model: an output with a loss and a metric. The first head of a model drives charts and
// targets.
struct HeadInfo {
  std::string name;  // "label"; unique in its model; see is_head_name
  Metric metric = Metric::kAccuracy;
  int64_t targets = 1;  // of a sample, at most: 1, or a sequence's length

  friend bool operator==(const HeadInfo&, const HeadInfo&) = default;
};

// A measure of an evaluation by its name: a head, and its metric or its loss.
struct MeasureName {
  std::string head;               // "" for the model's first
  std::string metric = "metric";  // "loss", "metric" (the head's own), or that metric's word

  // Reads "loss", "start/exact-match", "f1/value". Returns nothing if it is no such name.
  static std::optional<MeasureName> parse(const std::string& text);
  std::string to_string() const;
  friend bool operator==(const MeasureName&, const MeasureName&) = default;
};

struct Measure {
  size_t head = 0;       // index
  bool is_loss = false;  // else the head's metric
  bool higher_is_better = false;
};

// Returns the measure of this name, or nothing if the heads have none.
std::optional<Measure> find_measure(const MeasureName& name, const std::vector<HeadInfo>& heads);
// Returns the names of all measures, between commas, for messages.
std::string measures_of(const std::vector<HeadInfo>& heads);

// Returns whether a head may have this name: 1 to 64 of a-z, A-Z, 0-9, '-' and '_'.
bool is_head_name(const std::string& name);

// The training loss of a micro-batch whose program does not tell it. Finite, so that no check takes
// it for a mistake; no loss is as low.
inline constexpr float kUnknownLoss = std::numeric_limits<float>::lowest();

// Sums of a head over some samples of an evaluation. A target that is ignored is not counted.
struct HeadSums {
  // Losses of the counted targets, in nats; not smoothed, not weighted by classes.
  double loss = 0.0;
  int64_t counted = 0;
  // Correct targets; squared errors for kMeanSquaredError, losses for kPerplexity.
  double metric = 0.0;

  void add(const HeadSums& other);

  friend bool operator==(const HeadSums&, const HeadSums&) = default;
};

// Sums over some samples of an evaluation, by the names that a program has given them: see
// is_logged_name. At most kMaxNamedSums.
using NamedSums = std::map<std::string, double>;
inline constexpr size_t kMaxNamedSums = 64;

struct HeadResult {
  HeadInfo info;
  HeadSums sums;

  // Returns the mean loss of a target, or nothing if none was counted, or for a formula.
  std::optional<double> loss() const;
  // Returns the metric's value, or nothing if no target was counted. Perplexity: exp of the mean
  // loss.
  std::optional<double> value() const;
  // Returns the value as users read it: "98.33 %", "6.4200", or "-" if there is none.
  std::string text() const;

  friend bool operator==(const HeadResult&, const HeadResult&) = default;
};

}  // namespace pushpull
