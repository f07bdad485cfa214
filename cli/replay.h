// Recomputes a recorded run in this process: model and data on one side, the servers' shards
// (ps/server/replay.h) on the other. Reads data files; one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/io/record.h"
#include "common/layout/tensor_table.h"
#include "common/net/flat_state.h"
#include "datasets/dataset.h"
#include "models/model.h"

namespace pushpull {

struct Job;

// The first update, in the record's order, after which a loss or a weight is not finite.
struct FirstNotFinite {
  size_t update = 0;      // from 1; 0 = the initial weights
  RecordedUpdate at;      // the update
  RecordedPush push;      // the push that it applied
  bool in_weight = true;  // false = the loss or gradient of a push computed afterwards
  std::string tensor;     // tensor of the weight; else empty
  std::optional<RecordedPush> computed;  // the push computed afterwards
  std::string text;                      // text for users
};

struct ReplayResult {
  size_t done = 0;
  std::vector<float> weights;
  std::string weights_sha256;
  // True if the weights equal the run's. Empty if there is nothing to compare with (the replay or
  // the run ended early).
  std::optional<bool> verified;
  std::optional<FirstNotFinite> first_not_finite;
};

struct ReplayRun {
  const RunRecord& record;
  const Job& job;  // the record's
  const Dataset& dataset;
  Model& model;
  const FlatState* start = nullptr;           // initial weights; null = init rules
  std::optional<size_t> stop_at;              // number of updates; empty = all
  std::function<void(size_t done)> progress;  // called after each update
};

// Throws Error(kNotFinite) if a gradient that the run applied is not finite here.
ReplayResult replay(const ReplayRun& run);

// Returns text such as "update 12 (server 1: worker 0, step 4, micro-batches 2 to 3)".
std::string describe_update(size_t number, const RecordedUpdate& update, const RecordedPush& push);

}  // namespace pushpull
