// Computes gradients: reads micro-batches, runs the model forward and backward, sums along the
// fixed tree and rejects values that are not finite. Does no network I/O: trainers push the sums, a
// replay applies them. Single-threaded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/layout/slice_map.h"
#include "common/update/range_update.h"
#include "datasets/dataset.h"
#include "models/model.h"
#include "worker/compute/gradient_source.h"
#include "worker/compute/group_norm.h"
#include "worker/compute/stage_weights.h"
#include "worker/member/time_split.h"
#include "worker/member/trace.h"

namespace pushpull {

struct Job;

class Compute {
 public:
  // Borrows all references.
  //   over: returns true once no more work is needed; called between micro-batches.
  //   memory: where gradients are written.
  //   exchange: see make_gradient_source.
  Compute(const Job& job, const Dataset& dataset, Model& model, const SliceMap& map,
          std::function<bool()> over, PushedMemory memory = {}, StageExchange* exchange = nullptr);

  // Sets the rank, which the model, error messages and `straggler` refer to; -1 if it is not known
  // yet.
  void set_rank(int rank);
  // Adds events for each micro-batch and for copies of devices to `trace`, which is borrowed. Call
  // before the first node().
  void set_trace(Trace& trace) { source_->set_trace(trace); }
  // Counts micro-batches in `activity`, which is borrowed. Call before the first node().
  void set_activity(Activity& activity) { batches_.set_activity(activity); }

  // Begins a task: each call of node() computes the next of these nodes of `step`.
  //   weights: the flat vector. It must not change until the last node() has returned, because a
  //   device copies it only once.
  void begin(int64_t step, std::vector<Range> nodes, std::span<const float> weights);
  // The same for a model in stages on the processor (Model::pipeline) that read different weights.
  //   weights: by stage; one without stages. They must not change, as above.
  void begin(int64_t step, std::vector<Range> nodes, std::span<const std::vector<float>> weights);
  // Announces the nodes that probably come next: prefetches their data, and copies the first
  // micro-batch to the device while that computes the current task's last one. Call after begin().
  // A wrong guess costs only time.
  void hint(int64_t step, std::vector<Range> nodes);

  // Computes the next node and passes the sum of its gradients to `ready`, slice by slice in the
  // order in which backward finishes them.
  //   losses: the mean loss of each micro-batch is appended.
  //   needed: called for each tensor before forward reads it, while weights are still arriving; may
  //   be empty; may throw.
  // Returns false if the work was over before the end. Throws Error(kNotFinite), which names
  // worker, step and tensor. Call begin() again after either.
  bool node(const GradientSum::SliceReady& ready, std::vector<float>& losses,
            const WeightsNeeded& needed = {});

  // The model's: see Model.
  void note_progress(const StepProgress& progress) { model_.note_progress(progress); }
  std::optional<double> learning_rate() const { return model_.learning_rate(); }
  // Gives the model the weights after the job's last step.
  void finish(std::span<const float> weights) { model_.keep_final(weights); }

  // Returns the gradients that were replaced by zeros (on-bad-gradient = skip) since the last call,
  // each with the index of its loss.
  std::vector<wire::BadGradient> take_bad() { return source_->take_bad(); }
  // Returns the figures of the model's stages so far; empty if it is not divided.
  std::vector<StageTotals> stages() const { return source_->stages(); }
  // Returns the hash of the samples of all nodes since the last call.
  HashSum take_data_hash() { return batches_.take_hash(); }

  // Returns the whole sum of the last node, which must be in host memory. Valid until the next
  // node().
  std::span<const float> sum() const { return source_->sum(); }
  // Returns the squared norm of the mean gradient, for clipping. In a group: over all stages, see GroupNorm.
  //   sum: flat vector, summed over `micro_batches`.
  double squares(std::span<const float> sum, int64_t step, Range micro_batches);
  // In a group, completes weights that a local step has changed, see StageWeights.
  void share_weights(int64_t step, Range micro_batches, float* weights);

 private:
  struct Task {
    int64_t step = -1;
    std::vector<Range> nodes;
  };

  void check_finite(int64_t step, int slice, const Payload& part) const;

  Model& model_;
  const SliceMap map_;
  RangeUpdate whole_;
  MicroBatches batches_;
  const std::unique_ptr<GradientSource> source_;
  StageExchange* const exchange_;       // null unless a group of workers divides the model
  std::optional<GroupNorm> norm_;       // none without `exchange_`
  std::optional<StageWeights> shared_;  // from the first call of share_weights
  Task task_;                           // given to begin()
  size_t next_ = 0;                     // index in task_.nodes
  std::span<const float> weights_;
  std::span<const std::vector<float>> stage_weights_;  // empty unless stages read different ones
  Task hinted_;
};

}  // namespace pushpull
