// Plans the runs of a comparison and their order, and chooses the best try of --tune. Starts no
// process. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "cli/compare/compare_options.h"
#include "cli/report/compare_result.h"

namespace pushpull {

// Values that --tune tries or has chosen: key -> value.
using Tuned = std::map<std::string, std::string>;

// A row of the tables.
struct Variant {
  std::string strategy;
  int64_t workers = 1;
  std::string link = {};   // empty = this machine's loopback
  std::string codec = {};  // of --codecs; empty = the job's own
  int64_t stages = 0;      // of --stages; 0 = the job's own
  friend bool operator<(const Variant& a, const Variant& b) {
    return std::tie(a.strategy, a.workers, a.link, a.codec, a.stages) <
           std::tie(b.strategy, b.workers, b.link, b.codec, b.stages);
  }
};

struct PlannedRun {
  Variant variant;
  uint64_t seed = 0;
  Tuned tuned;
  std::string name;  // of its folder
};

// Returns whether the strategy can run with so many workers: a group needs one for each stage, backup:B drops the B
// slowest groups, and one must remain.
bool can_have(const std::string& strategy, int64_t workers, int64_t stages);

// Returns the repeats, interleaved: by seed, then by link, then by number of workers, then
// strategies, stages and codecs in turn. Each group starts with the next strategy, so that a drift of the
// machine (heat, other load) affects all strategies equally.
std::vector<PlannedRun> plan_repeats(const CompareOptions& options,
                                     const std::map<Variant, Tuned>& chosen);

// Returns the tries of --tune with the first seed: every combination of its values for every
// variant, interleaved in the same way.
std::vector<PlannedRun> plan_tries(const CompareOptions& options);

// Returns text such as "lr=0.5 momentum=0.9".
std::string to_string(const Tuned& tuned);

// Returns the index of the best try of a variant: the one that reaches the target soonest (if there
// is a target), then the best final value of the metric, then the lowest test loss, then the first. Empty
// if all tries failed.
std::optional<size_t> best_try(const std::vector<CompareRun>& tries);

// Returns the steps between two evaluations, chosen for about kEvaluations of them. local:H can be
// evaluated only at the end of a round; the number is a multiple of every H among the strategies,
// so that all are evaluated at the same steps.
constexpr int64_t kEvaluations = 20;
int64_t eval_every(int64_t total_steps, const std::vector<std::string>& strategies);

// Returns the job keys of this run, the arguments of `pushpull run` beside the job file.
std::map<std::string, std::string> keys_of(const CompareOptions& options, const PlannedRun& run,
                                           int64_t eval_every);

}  // namespace pushpull
