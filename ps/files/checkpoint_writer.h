// Puts together, hashes and writes snapshots on a thread of its own, so that neither these copies
// nor a slow disk stop the server. One snapshot at a time: the coordinator hands in the next one
// after the result of the one before.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/process.h"
#include "common/io/checkpoint.h"
#include "common/net/shard_client.h"

namespace pushpull {

class CheckpointWriter {
 public:
  struct Result {
    int64_t step = 0;
    std::string weights_sha256;  // over all weights in canonical order, where it was asked for
    std::exception_ptr error;    // what kept it from being written
  };

  CheckpointWriter(CheckpointStore store, TensorTable table, std::vector<std::string> slot_names);
  // Waits for the write that is going on.
  ~CheckpointWriter();

  // hash_weights: the result shall have their hash, which is that of no file.
  void write(GatheredState snapshot, CheckpointState state, bool hash_weights);
  // Only hashes the weights, as `write` does.
  void hash(GatheredState snapshot);
  // The result of `write` or `hash`, once; readable on done().fd() when it has come.
  std::optional<Result> take();
  WakeFd& done() { return done_; }
  // Something was handed in, and its result has not been taken.
  bool busy() const { return busy_; }

 private:
  void start(GatheredState snapshot, std::optional<CheckpointState> state, bool hash_weights);
  Result run(GatheredState gathered, const std::optional<CheckpointState>& state,
             bool hash_weights);
  void finish(Result result);

  CheckpointStore store_;
  const TensorTable table_;
  const std::vector<std::string> slot_names_;
  bool busy_ = false;  // coordinator's thread only
  WakeFd done_;
  std::mutex mutex_;
  std::optional<Result> result_;  // guarded by mutex_
  std::jthread thread_;
};

}  // namespace pushpull
