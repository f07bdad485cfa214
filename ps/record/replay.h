// Recomputes a recorded run, update by update, with the shards and the arithmetic of the servers.
// State machine: whoever drives it computes the gradients; knows no model, file or thread.
//
// It keeps only weights that a later push has read, and only gradients that some server has still
// to apply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/io/record.h"
#include "common/job/job.h"
#include "common/layout/slice_map.h"
#include "common/layout/tensor_table.h"
#include "common/net/shard_client.h"
#include "ps/engine/shard.h"
#include "ps/record/server_logs.h"

namespace pushpull {

// The contents of a push.
struct PushGradient {
  std::map<int, Payload> slices;  // the sum over its micro-batches, by slice
  double squares = 0.0;           // of the mean gradient, where the job clips
};

class Replay {
 public:
  // weights: the flat vector. May throw Error(kNotFinite).
  using Compute =
      std::function<PushGradient(const RecordedPush& push, std::span<const float> weights)>;

  // record, compute: borrowed. job: the record's. start: what was loaded; null for init rules.
  // Throws Error(kUsage) for a strategy that cannot be recorded, Error(kData) where the updates are
  // in no order that can be.
  Replay(const RunRecord& record, const Job& job, const TensorTable& table, const FlatState* start,
         Compute compute);

  // Entries of the record that are done, and all of them. Several may make one update.
  size_t done() const { return done_; }
  size_t updates() const { return record_.updates.size(); }
  // Computes the next one. What `compute` throws comes through; then nothing has changed.
  void next();
  // Computes the push that ended the run, without applying it. False where the record lacks what it
  // has read.
  bool compute_failed();

  // The newest of the updates that are in the weights which this push has read, from 1; 0: none.
  size_t newest_read(const RecordedPush& push) const;
  // The tensor of the first weight of the newest update's slices that is not finite; empty: all
  // are.
  std::optional<std::string> not_finite() const;
  std::vector<float> weights() const;

 private:
  struct OpenPush {
    PushGradient gradient;
    std::vector<std::map<int, Payload>> read;  // by server; with delay compensation
  };
  struct Version {
    std::map<int, Payload> weights;
    int64_t readers = 0;  // pushes that will still be computed on it
  };

  void count_readers(const RecordedPush& push);
  void keep_version(int server);
  std::vector<float> weights_of(const RecordedPush& push) const;
  void release(const RecordedPush& push);
  OpenPush& open(size_t number);
  // The entries of one update at one server, in order.
  using Gathered = std::vector<const RecordedUpdate*>;
  void apply_push(const RecordedUpdate& update);
  void apply_step(size_t server, const Gathered& pushes);
  void apply_buffer(size_t server, const Gathered& pushes);
  // The pushes' sums over a slice: push i is leaf i of the fixed tree over them.
  std::vector<PartialSum> leaves(std::span<const size_t> pushes, int slice) const;
  void close(size_t number);

  const RunRecord& record_;
  const Job job_;
  const TensorTable table_;
  const Compute compute_;
  const SliceMap map_;
  const VersionRules rules_;
  std::vector<Shard> shards_;                       // by server, of those with slices
  std::vector<int64_t> now_;                        // version of each
  std::vector<std::map<int64_t, Version>> kept_;    // by server; only what is still read
  std::vector<std::map<int64_t, size_t>> made_by_;  // by server: version -> update, from 1
  std::vector<bool> ends_update_;                   // by entry
  std::vector<Gathered> gathered_;                  // by server: of the update that is not complete
  std::vector<int> left_;                           // by push: updates that still apply it
  std::map<size_t, OpenPush> open_;
  size_t done_ = 0;
};

}  // namespace pushpull
