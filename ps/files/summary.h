// The results of a run: the fields of summary.json and of the table at the end. Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/io/run_counts.h"
#include "common/layout/metric.h"
#include "ps/record/run_totals.h"

namespace pushpull {

struct Summary {
  std::string strategy;
  int64_t workers = 0;
  int64_t servers = 0;
  int64_t steps = 0;  // completed steps of the job, earlier runs included
  std::optional<int64_t> resumed_from_step;
  int64_t model_parameters = 0;  // trainable
  int64_t arena_bytes = 0;       // of the worker that declared first
  int64_t slots = 0;             // of the same worker
  int64_t samples = 0;
  std::vector<int64_t> samples_per_worker;
  int64_t pushes_applied = 0;
  int64_t pushes_dropped = 0;  // backup:B
  std::vector<int64_t> pushes_dropped_per_worker;
  double seconds = 0.0;
  int64_t recoveries = 0;  // lost servers that were replaced
  int64_t steps_repeated = 0;
  int64_t checkpoints_failed = 0;
  int64_t bad_gradients = 0;  // skipped gradients, and those of quarantined workers
  double samples_per_second = 0.0;
  std::optional<double> train_loss;       // mean over the newest epoch, this run's steps only
  std::vector<HeadResult> heads;          // of the newest evaluation; empty if there was none
  bool stopped_early = false;             // by stop-when
  EvaluationRecord evaluation;            // without a measure if the job follows none
  std::optional<std::string> stopped_by;  // the signal, and the process that received it
  std::string initial_weights_sha256;
  std::vector<std::string> drawn_tensors;   // that init-from lacks
  std::vector<std::string> unused_tensors;  // of init-from
  std::string data_digest;                  // as the workers have declared it
  std::string numerics;                     // of the worker that declared first
  std::string data_order_sha256;            // hash of the samples that this run has drawn
  std::string weights_sha256;
  std::vector<int64_t> slices_per_server;
  std::map<int64_t, int64_t> staleness;  // number of updates by staleness
  RunTotals totals;
};

}  // namespace pushpull
