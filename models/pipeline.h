// A model divided into stages (models/stages.h), as pipelines run it: stages compute different micro-batches
// at the same time, on threads of one worker or on the workers of a group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/layout/fields.h"
#include "common/layout/metric.h"
#include "models/model.h"

namespace pushpull {

namespace device {
class Device;
}

// A pass of one micro-batch through one stage.
struct StageAction {
  bool forward = true;
  int64_t micro_batch = 0;
  friend bool operator==(const StageAction&, const StageAction&) = default;
};

// One stage. One call at a time; stages may run on threads of their own.
class PipelineStage {
 public:
  // A micro-batch.
  struct Batch {
    virtual ~Batch() = default;
  };
  struct Pass {
    std::span<const float> weights;  // of the whole model, as in Model::train
    // Of this micro-batch, for the whole model; the stage writes those of the tensors that it reads.
    // May be empty in forward unless forward_writes().
    std::span<float> gradients;
    const Batch* batch = nullptr;
    size_t slot = 0;  // below slots(); the same in both passes
  };

  virtual ~PipelineStage() = default;

  // Returns the tensors that belong to it, ascending: it finishes their gradients.
  virtual std::vector<size_t> tensors() const = 0;
  // Returns the number of operations with parameters; 0 if only the worker's program knows them.
  virtual int64_t layers() const = 0;
  // Returns the most micro-batches between forward and backward.
  virtual size_t slots() const = 0;
  // Returns its passes, in order; backward passes in the order of the micro-batches.
  virtual std::vector<StageAction> actions(int64_t micro_batches) const = 0;
  // Return the floats that the stage before passes to this one, and this one to the stage behind; as
  // many come back as their gradient. Both are 0 if the workers' programs pass them.
  virtual size_t input_floats() const = 0;
  virtual size_t output_floats() const = 0;
  // Returns whether forward writes gradients: those of statistics.
  virtual bool forward_writes() const = 0;

  // Checks and copies a micro-batch, for this stage and those before it.
  virtual std::unique_ptr<Batch> prepare(const Samples& samples) const = 0;
  // Says that later passes have other weights than those before. A stage on a device copies its
  // weights once after each call, when a pass first needs them; they must not change until all
  // passes before the next call have returned. Call while no pass runs.
  virtual void new_weights() {}
  // Computes forward in training mode.
  //   input: of the stage before; null in the first. output: for the stage behind; null in the last.
  //   needed: see Model::train; called for the tensors that this stage reads.
  virtual void forward(const Pass& pass, const float* input, float* output,
                       const WeightsNeeded& needed) = 0;
  // Computes backward. A tensor that a stage behind reads, too, has that stage's gradient before.
  //   output_gradient: of the stage behind; null in the last. input_gradient: for the stage before;
  //   null in the first.
  virtual void backward(const Pass& pass, const float* output_gradient, float* input_gradient,
                        const GradientReady& ready) = 0;
  // Returns the loss of a micro-batch after forward of the last stage.
  virtual float loss(const Pass& pass) const = 0;
  // Computes a chunk in evaluation mode, see Model::evaluate.
  //   sums: of the heads in the last stage, otherwise empty.
  virtual void evaluate(std::span<const float> weights, const Samples& samples, const float* input,
                        float* output, std::span<HeadSums> sums) = 0;
};

// Evaluates a chunk in stages that follow each other, see PipelineStage::evaluate.
inline void evaluate_stages(std::span<PipelineStage* const> stages, std::span<const float> weights,
                            const Samples& samples, const float* input, float* output,
                            std::span<HeadSums> sums) {
  std::vector<float> before;
  for (PipelineStage* const stage : stages) {
    const bool is_last = stage == stages.back();
    std::vector<float> between(is_last ? 0 : stage->output_floats());
    stage->evaluate(weights, samples, input, is_last ? output : between.data(),
                    is_last ? sums : std::span<HeadSums>{});
    before = std::move(between);
    input = before.data();
  }
}

// All stages, in one worker.
class Pipeline {
 public:
  virtual ~Pipeline() = default;
  virtual size_t stages() const = 0;
  virtual PipelineStage& stage(size_t index) = 0;
  // Returns a device that copies from the worker's weights, or null if the stages are on the
  // processor. Memory that one device of a worker has registered is registered with all.
  virtual std::shared_ptr<device::Device> device() const { return nullptr; }
};

// The part of a model that a worker's program has, where the programs have divided it. They also pass
// activations and gradients.
struct OwnStage {
  int stage = 0;
  int stages = 1;
  int port = 0;        // at which the program listens for the others of its group; 0: at none
  std::string digest;  // differs if data of the stage alone differ
};

// Where the programs of a group meet.
struct MeetingPlace {
  int64_t attempt = 0;  // of the group; 0: there is no group
  std::string host;     // of the worker with stage 0
  int port = 0;         // of its program
};

// A model that a group of workers divides: this one computes one stage at a time, which it may divide again into
// local stages. The local stages of all workers are one pipeline.
class GroupStage {
 public:
  virtual ~GroupStage() = default;
  virtual int stages() const = 0;
  // Returns the tensors that each stage reads, ascending. A tensor belongs to the first of its
  // readers.
  virtual const std::vector<std::vector<size_t>>& tensors_read() const = 0;
  // Returns the most floats that one stage passes to another.
  virtual size_t boundary_floats() const = 0;

  // Returns into how many local stages this worker divides the one that it computes.
  virtual int local_stages() const { return 1; }
  // Plans a stage in place of the one before, unless it is planned with enough slots.
  //   local_stages: of each worker of the group, by stage.
  //   micro_batches: the most of a node.
  // Throws Error as make_model does.
  virtual void take_stage(int stage, const std::vector<int>& local_stages,
                          int64_t micro_batches) = 0;
  // Returns the stage; -1 before take_stage.
  virtual int stage() const = 0;
  // Returns how many local stages are before this worker's first one.
  virtual int first_local() const { return stage(); }
  // Returns its local stages to compute with. Valid until take_stage.
  virtual std::vector<PipelineStage*> planned() = 0;

  // ---- a model of the workers' programs ----
  // Returns what this worker declares; null: it knows the whole model.
  virtual const OwnStage* own_stage() const { return nullptr; }
  // Takes the tensors of the whole model, before take_stage.
  virtual void take_whole(const TensorTable& /*table*/) {}
  // Hears of each change of the group, before the first task in it.
  virtual void on_group(const MeetingPlace& /*place*/) {}
  // Sets what a pass calls about every 20 ms while the program computes. It may throw, which ends the
  // pass. Empty: nothing.
  virtual void set_idle(std::function<void()> /*idle*/) {}
};

}  // namespace pushpull
