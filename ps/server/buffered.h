// buffered:K gathers pushes of any workers. Each K pushes make one update, with their mean and at
// the rate of their newest lease. Pulls are answered at once, as under async. When a barrier is
// due, waiting pushes are applied before it opens, so that every micro-batch counts. Each server
// gathers on its own. Not thread-safe.
// Sources: K-batch async SGD (Dutta et al., arXiv 1803.01113); FedBuff (Nguyen et al., arXiv
// 2106.06639).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/base/buffer_pool.h"
#include "ps/server/single_pushes.h"

namespace pushpull {

class Parallel;
struct Job;
struct UpdateInfo;

// Computes the update by the mean of some pushes, before clipping. Server and replay share this
// function and the next one, so that both compute the same bits.
//   newest_step: of the pushes' leases. micro_batches: in all pushes. rate: that the worker's program has
//   said in the last one of that step.
UpdateInfo buffered_update(const Job& job, int64_t total_steps, int64_t newest_step,
                           int64_t micro_batches, std::optional<double> rate = {});

// Updates all slices of a shard once. If the job clips, the norm is that of the mean over the
// slices of this shard.
//   updates: for each slice one part per push: push i, in order of arrival, is leaf i of the fixed
//   tree over all pushes.
void apply_buffered(const Job& job, Shard& shard, std::span<const SliceUpdate> updates,
                    int64_t pushes, UpdateInfo info, Parallel& parallel);

class BufferedPushes : public SinglePushes {
 public:
  // size: K.
  BufferedPushes(AggregationSetup setup, int64_t size);

  void for_waiting(const std::function<void(PartialSum&)>& visit) override;

 protected:
  void count(ReceivedPush push) override;
  void flush() override;

 private:
  // Copies the payload into this server's memory: a worker that shares its memory reuses it once
  // the push is acknowledged, and the acknowledgement must not wait for other workers' pushes.
  Payload own(const Payload& payload);

  const int64_t size_;
  BufferPool pool_;
  std::vector<ReceivedPush> gathered_;          // without parts, in order of arrival
  std::vector<std::vector<PartialSum>> parts_;  // of gathered_, by place of the slice
  std::vector<SliceUpdate> now_;                // reused by every update
};

}  // namespace pushpull
