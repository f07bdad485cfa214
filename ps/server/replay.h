// Recomputes a recorded run, update by update, with the shards and the arithmetic of the servers. A
// state machine: the caller computes the gradients. Does no I/O and does not depend on the model.
//
// Keeps only weights that a later push has read, and only gradients that some server must still
// apply.
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
#include "common/net/flat_state.h"
#include "ps/engine/shard.h"
#include "ps/server/update_logs.h"

namespace pushpull {

// The contents of a push.
struct PushGradient {
  std::map<int, Payload> slices;  // sum over its micro-batches, by slice
  double squares = 0.0;           // squared norm of the mean gradient; 0 without clipping
};

class Replay {
 public:
  //   weights: the flat vector that each stage has read; one without stages. May throw Error(kNotFinite).
  using Weights = std::span<const std::vector<float>>;
  using Compute = std::function<PushGradient(const RecordedPush& push, Weights weights)>;

  // Borrows record and compute.
  //   job: the job in the record. start: the loaded state; null for init rules.
  // Throws Error(kUsage) if the strategy cannot be recorded, Error(kData) if the updates are in an
  // impossible order.
  Replay(const RunRecord& record, const Job& job, const TensorTable& table, const FlatState* start,
         Compute compute);

  // The number of entries done, and of all entries in the record. Several may make one update.
  size_t done() const { return done_; }
  size_t updates() const { return record_.updates.size(); }
  // Replays the next entry. If `compute` throws, the exception passes through and nothing has
  // changed.
  void next();
  // Computes the push that ended the run, without applying it. Returns false if the record lacks
  // the weights that it read.
  bool compute_failed();

  // Returns the newest update, counted from 1, among those contained in the weights that this push
  // read; 0 if there is none.
  size_t newest_read(const RecordedPush& push) const;
  // Returns the tensor of the first weight in the newest update's slices that is not finite, or
  // nothing.
  std::optional<std::string> not_finite() const;
  std::vector<float> weights() const;

 private:
  struct OpenPush {
    PushGradient gradient;
    std::vector<std::map<int, Payload>> read;  // by server; with delay compensation
  };
  struct Version {
    std::map<int, Payload> weights;
    int64_t readers = 0;  // pushes still to be computed on it
  };

  void count_readers(const RecordedPush& push);
  void keep_version(int server);
  std::vector<std::vector<float>> weights_of(const RecordedPush& push) const;
  void release(const RecordedPush& push);
  OpenPush& open(size_t number);
  // The entries of one update at one server, in order.
  using Gathered = std::vector<const RecordedUpdate*>;
  void apply_push(const RecordedUpdate& update);
  void apply_step(size_t server, const Gathered& pushes);
  void apply_buffer(size_t server, const Gathered& pushes);
  // Returns the trust ratios of a step's update. All servers have the step's weights when the first
  // one applies it, since its pushes have read them.
  std::span<const double> trust_of(int64_t step, std::span<const size_t> set,
                                   const UpdateInfo& info);
  // Returns the pushes' sums over a slice: push i is leaf i of the fixed tree over them.
  std::vector<PartialSum> leaves(std::span<const size_t> pushes, int slice) const;
  void close(size_t number);

  const RunRecord& record_;
  const Job job_;
  const TensorTable table_;
  const Compute compute_;
  const SliceMap map_;
  const VersionRules rules_;
  std::vector<Shard> shards_;                       // by server with slices
  std::vector<int64_t> now_;                        // version of each
  std::vector<std::map<int64_t, Version>> kept_;    // by server; only versions still to be read
  std::vector<std::map<int64_t, size_t>> made_by_;  // by server: version -> update, from 1
  std::vector<bool> ends_update_;                   // by entry
  std::vector<Gathered> gathered_;                  // by server: the incomplete update
  std::vector<int> left_;                           // by push: updates still to apply it
  std::map<size_t, OpenPush> open_;
  // backup, with an optimizer that scales by tensor: of the newest step that a server has applied.
  std::optional<std::pair<int64_t, std::vector<double>>> trust_;
  size_t done_ = 0;
};

}  // namespace pushpull
