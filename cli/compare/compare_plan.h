// Which runs a comparison makes, in which order, and which try of --tune is the best. Decides only,
// starts nothing. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "cli/compare/compare_options.h"
#include "cli/result/compare_result.h"

namespace pushpull {

// Values that --tune has picked, or tries: key -> value.
using Tuned = std::map<std::string, std::string>;

// A row of the tables.
struct Variant {
  std::string strategy;
  int64_t workers = 1;
  std::string link = {};   // empty: this machine's loopback
  std::string codec = {};  // of --codecs; empty: the job's own
  friend bool operator<(const Variant& a, const Variant& b) {
    return std::tie(a.strategy, a.workers, a.link, a.codec) <
           std::tie(b.strategy, b.workers, b.link, b.codec);
  }
};

struct PlannedRun {
  Variant variant;
  uint64_t seed = 0;
  Tuned tuned;
  std::string name;  // of its folder
};

// The repeats, interleaved: seed by seed, within a seed link by link and number of workers by
// number of workers, strategies and codecs in turn. Who begins moves on by one each time, so that
// what drifts on a machine (heat, other people's work) meets all strategies alike.
std::vector<PlannedRun> plan_repeats(const CompareOptions& options,
                                     const std::map<Variant, Tuned>& chosen);

// The tries of --tune, with the first seed: every combination of its values for every variant.
// Interleaved in the same way.
std::vector<PlannedRun> plan_tries(const CompareOptions& options);

// "lr=0.5 momentum=0.9".
std::string to_string(const Tuned& tuned);

// Index of the best of a variant's tries. With a target: who reaches it sooner; never is worse than
// ever. Then the higher accuracy at the end, then the lower test loss, then the earlier one. Empty
// where all have failed.
std::optional<size_t> best_try(const std::vector<CompareRun>& tries);

// Steps between two evaluations so that there are about kEvaluations. local:H can be evaluated at
// the ends of its rounds only; a multiple of every H among the strategies has all evaluated at the
// same steps.
constexpr int64_t kEvaluations = 20;
int64_t eval_every(int64_t total_steps, const std::vector<std::string>& strategies);

// What `pushpull run` is told beside the job file: the job's keys for this run.
std::map<std::string, std::string> keys_of(const CompareOptions& options, const PlannedRun& run,
                                           int64_t eval_every);

}  // namespace pushpull
