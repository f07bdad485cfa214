// Computes gradients: reads micro-batches, runs the model forward and backward, sums along the
// fixed tree, refuses what is not finite. Knows no connection: trainers push what it hands out, a
// replay applies it. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/job.h"
#include "common/range_update.h"
#include "common/slice_map.h"
#include "datasets/dataset.h"
#include "datasets/loader.h"
#include "models/model.h"
#include "worker/data_hash.h"
#include "worker/device_sum.h"
#include "worker/device_team.h"
#include "worker/gradient_sum.h"
#include "worker/straggling.h"
#include "worker/trace.h"

namespace pushpull {

class Compute {
 public:
  // Borrows everything but the map. over: true once nothing more needs to be computed; asked
  // between micro-batches. memory: where gradients are to lie.
  Compute(const Job& job, const Dataset& dataset, Model& model, const SliceMap& map,
          std::function<bool()> over, PushedMemory memory = {});

  // For messages, and for the straggler. -1: not known yet.
  void set_rank(int rank);
  // Forward and backward of each micro-batch go there. Borrowed.
  void set_trace(Trace& trace) { trace_ = &trace; }

  // The sum of the gradients of micro-batches `node` of `step` at `weights` (the flat vector), by
  // slices, in the order in which backward finishes them.
  //   losses: the mean loss of each micro-batch is added at its end.
  //   needed: asked for each tensor before forward reads it, as long as `weights` are not complete;
  //   may be empty, and may throw.
  // Returns false when it was over before the end. Throws Error(kNotFinite) that names worker, step
  // and tensor.
  bool node(int64_t step, Range node, std::span<const float> weights,
            const GradientSum::SliceReady& ready, std::vector<float>& losses,
            const WeightsNeeded& needed = {});

  // The hash of the samples of all nodes since the last call.
  HashSum take_data_hash() { return std::exchange(data_hash_, {}); }

  // The whole sum of the last node, where it is in host memory. Valid until the next call of
  // `node`.
  std::span<const float> sum() const { return team_ ? team_->sum() : gradient_->sum(); }
  // Squares of the mean gradient, for clipping by its norm.
  //   sum: of the flat vector, over so many micro-batches.
  double squares(std::span<const float> sum, int64_t micro_batches) const;

  // What will be computed next: read it ahead.
  void hint(int64_t step, Range range);

 private:
  // What `node` was called with.
  struct Node {
    int64_t step = 0;
    Range range;
    std::span<const float> weights;
    const GradientSum::SliceReady& ready;
    WeightsNeeded needed;
  };

  const MicroBatch& read(int64_t step, int64_t micro_batch);
  bool on_host(const Node& node, std::vector<float>& losses);
  bool on_device(const Node& node, std::vector<float>& losses);
  bool on_devices(const Node& node, std::vector<float>& losses);
  void add_losses(const Node& node, std::span<const float> all, std::vector<float>& losses) const;
  void trace_last(const Node& node);
  void sleep(double seconds) const;
  void check_loss(int64_t step, int64_t micro_batch, float loss) const;
  void check_finite(int64_t step, int slice, const Payload& part) const;

  const Job& job_;
  Model& model_;
  SliceMap map_;
  RangeUpdate whole_;
  Loader loader_;
  const std::vector<DeviceStep*> devices_;  // the model's; none: it computes on the processor
  std::unique_ptr<GradientSum> gradient_;   // null where there are several
  std::unique_ptr<DeviceTeam> team_;        // of several
  std::function<bool()> over_;
  Straggling straggling_;
  HashSum data_hash_;
  int rank_ = -1;
  Trace* trace_ = nullptr;
};

}  // namespace pushpull
