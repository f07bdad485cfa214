// A recorded run, computed again in this process: model and data on one side, the servers' shards
// (ps/record/replay.h) on the other. Reads data files; one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/io/record.h"
#include "common/job/job.h"
#include "common/layout/tensor_table.h"
#include "common/net/shard_client.h"
#include "datasets/dataset.h"
#include "models/model.h"

namespace pushpull {

// The first update, in the record's order, after which a loss or a weight is not finite.
struct FirstNotFinite {
  size_t update = 0;      // from 1; 0: already the weights of the start
  RecordedUpdate at;      // that update
  RecordedPush push;      // what it has applied
  bool in_weight = true;  // false: in the loss or gradient of a push that was computed afterwards
  std::string tensor;     // whose weight; else empty
  std::optional<RecordedPush> computed;  // that push
  std::string text;                      // what a person reads
};

struct ReplayResult {
  size_t done = 0;
  std::vector<float> weights;
  std::string weights_sha256;
  // Equal to the run's; empty: there is nothing to compare with (stopped before, or the run was).
  std::optional<bool> verified;
  std::optional<FirstNotFinite> first_not_finite;
};

struct ReplayRun {
  const RunRecord& record;
  const Job& job;  // the record's
  const Dataset& dataset;
  Model& model;
  const FlatState* start = nullptr;           // what was loaded; null for init rules
  std::optional<size_t> stop_at;              // updates; empty: all
  std::function<void(size_t done)> progress;  // after each update
};

// Throws Error(kNotFinite) where a gradient that the run has applied is not finite here.
ReplayResult replay(const ReplayRun& run);

// "update 12 (server 1: worker 0, step 4, micro-batches 2 to 3)".
std::string describe_update(size_t number, const RecordedUpdate& update, const RecordedPush& push);

}  // namespace pushpull
