// Computes gradients: reads micro-batches, runs the model forward and backward, sums along the
// fixed tree, refuses numbers that are not finite. Knows no connection: trainers push the sums, a
// replay applies them. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/job/job.h"
#include "common/layout/slice_map.h"
#include "common/update/range_update.h"
#include "datasets/dataset.h"
#include "datasets/loader.h"
#include "models/model.h"
#include "worker/compute/data_hash.h"
#include "worker/compute/device_sum.h"
#include "worker/compute/device_team.h"
#include "worker/compute/device_trace.h"
#include "worker/compute/gradient_sum.h"
#include "worker/compute/skipped_gradients.h"
#include "worker/compute/straggling.h"
#include "worker/trace/activity.h"
#include "worker/trace/trace.h"

namespace pushpull {

class Compute {
 public:
  // Borrows everything but the map. over: true once nothing more needs to be computed; asked
  // between micro-batches. memory: where gradients are to lie.
  Compute(const Job& job, const Dataset& dataset, Model& model, const SliceMap& map,
          std::function<bool()> over, PushedMemory memory = {});

  // For messages, and for the straggler. -1: not known yet.
  void set_rank(int rank);
  // Forward and backward of each micro-batch are traced there, and the copies of devices. Borrowed.
  // Comes before the first node.
  void set_trace(Trace& trace);
  // Micro-batches are counted there. Borrowed. Comes before the first node.
  void set_activity(Activity& activity) { activity_ = &activity; }

  // From here on these nodes of `step` are computed, in their order, a call of `node` for each, all
  // at `weights` (the flat vector), which must not change until the last call has returned: a
  // device takes them in once.
  void begin(int64_t step, std::vector<Range> nodes, std::span<const float> weights);
  // These nodes will probably be begun next: reads their data ahead, and copies the first
  // micro-batch to the device while that computes the last one of now. Comes after `begin`; another
  // task may be begun all the same.
  void hint(int64_t step, std::vector<Range> nodes);

  // The sum of the gradients of the next node, by slices, in the order in which backward finishes
  // them.
  //   losses: the mean loss of each micro-batch is added at its end.
  //   needed: asked for each tensor before forward reads it, as long as the weights are not
  //   complete; may be empty, and may throw.
  // Returns false when it was over before the end. Throws Error(kNotFinite) that names worker, step
  // and tensor. After either, `begin` comes anew.
  bool node(const GradientSum::SliceReady& ready, std::vector<float>& losses,
            const WeightsNeeded& needed = {});

  // What counts as zeros of all nodes since the last call (on-bad-gradient = skip), each with its
  // place among the losses.
  std::vector<wire::BadGradient> take_bad() {
    return skipped_ ? skipped_->take_found() : std::vector<wire::BadGradient>();
  }
  // The hash of the samples of all nodes since the last call.
  HashSum take_data_hash() { return std::exchange(data_hash_, {}); }

  // The whole sum of the last node, where it is in host memory. Valid until the next call of
  // `node`.
  std::span<const float> sum() const { return team_ ? team_->sum() : gradient_->sum(); }
  // Squares of the mean gradient, for clipping by its norm.
  //   sum: of the flat vector, over so many micro-batches.
  double squares(std::span<const float> sum, int64_t micro_batches) const;

 private:
  struct Work {
    int64_t step = -1;
    std::vector<Range> nodes;
  };
  // The arguments of `node`.
  struct Node {
    int64_t step = 0;
    Range range;
    bool is_first = false;  // of those at these weights
    const GradientSum::SliceReady& ready;
    WeightsNeeded needed;
  };
  // A micro-batch that was copied to a device before it was asked for.
  struct Ahead {
    int64_t step = -1;  // -1: none
    int64_t micro_batch = -1;
    HashSum hash;
  };

  bool traced() const { return trace_ != nullptr && trace_->on(); }
  bool compute(const Node& node, std::vector<float>& losses);
  void stage(size_t device, int64_t step, int64_t micro_batch);
  void stage_ahead();
  void stage_ahead(size_t device, int64_t step, int64_t micro_batch);
  bool on_host(const Node& node, std::vector<float>& losses);
  bool on_device(const Node& node, std::vector<float>& losses);
  bool on_devices(const Node& node, std::vector<float>& losses);
  void add_losses(const Node& node, std::span<const float> all, std::vector<float>& losses) const;
  void sleep(double seconds) const;
  void count(int64_t micro_batches);
  float check_loss(int64_t step, int64_t micro_batch, float loss) const;
  void check_finite(int64_t step, int slice, const Payload& part) const;

  const Job& job_;
  Model& model_;
  SliceMap map_;
  RangeUpdate whole_;
  Loader loader_;
  const std::vector<DeviceStep*> devices_;  // the model's; none: it computes on the processor
  std::unique_ptr<GradientSum> gradient_;   // null where there are several
  std::unique_ptr<DeviceTeam> team_;        // of several
  std::vector<Ahead> ahead_;                // of each device
  Work work_;                               // that was begun
  size_t next_ = 0;                         // of its nodes
  std::span<const float> weights_;
  Work hinted_;
  std::function<bool()> over_;
  Straggling straggling_;
  HashSum data_hash_;
  std::optional<SkippedGradients> skipped_;  // on-bad-gradient = skip
  int rank_ = -1;
  Trace* trace_ = nullptr;
  Activity* activity_ = nullptr;               // null: nobody asks
  std::unique_ptr<DeviceTrace> device_trace_;  // of one device that is traced
};

}  // namespace pushpull
