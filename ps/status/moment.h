// The state of a running job at one moment, for the progress line and for sinks of metrics. Plain
// data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "ps/record/run_totals.h"
#include "ps/work/evaluations.h"

namespace pushpull {

struct Moment {
  double seconds = 0.0;  // since training began
  int64_t step = 0;
  int64_t end_step = 0;
  int64_t steps_per_epoch = 1;
  int64_t step_done = 0;  // steps of this run
  int64_t samples = 0;    // of this run
  double samples_per_second = 0.0;
  double learning_rate = 0.0;
  std::optional<double> loss;
  double staleness_mean = 0.0;
  int64_t staleness_max = 0;
  std::map<int64_t, int64_t> staleness;  // updates so far by their staleness
  RunTotals totals;                      // of all members, as they have reported
  std::optional<Evaluation> evaluation;  // new since the previous moment
  double test_seconds = 0.0;             // since training began, for the evaluated weights
  int64_t test_samples = 0;              // of this run, contained in the evaluated weights
};

}  // namespace pushpull
