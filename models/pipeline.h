// A model divided into stages (models/stages.h), as a pipeline runs it: stages compute different
// micro-batches at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/layout/fields.h"
#include "models/model.h"

namespace pushpull {

// A pass of one micro-batch through one stage.
struct StageAction {
  bool forward = true;
  int64_t micro_batch = 0;
  friend bool operator==(const StageAction&, const StageAction&) = default;
};

// Each stage may run on a thread of its own, one call at a time.
class Pipeline {
 public:
  // A micro-batch as all stages see it.
  struct Batch {
    virtual ~Batch() = default;
  };
  struct Pass {
    std::span<const float> weights;  // of the whole model, as in Model::train
    std::span<float> gradients;      // of this micro-batch; each stage writes those of its tensors
    const Batch* batch = nullptr;
    size_t slot = 0;  // below slots(stage); the same in both passes
  };

  virtual ~Pipeline() = default;

  virtual size_t stages() const = 0;
  // Returns the tensors that belong to a stage: it reports their gradients.
  virtual std::vector<size_t> tensors(size_t stage) const = 0;
  // Returns the number of operations with parameters.
  virtual int64_t layers(size_t stage) const = 0;
  // Returns the most micro-batches between forward and backward.
  virtual size_t slots(size_t stage) const = 0;
  // Returns the passes of a stage, in order; backward passes in the order of the micro-batches.
  virtual std::vector<StageAction> actions(size_t stage, int64_t micro_batches) const = 0;
  // Returns the floats that pass from a stage to the next, and back as their gradient.
  virtual size_t boundary_floats(size_t stage) const = 0;

  // Checks and copies a micro-batch.
  virtual std::unique_ptr<Batch> prepare(const Samples& samples) const = 0;
  // Computes forward in training mode.
  //   input: of the stage before; null in the first. output: for the stage behind; null in the last.
  //   needed: see Model::train.
  virtual void forward(size_t stage, const Pass& pass, const float* input, float* output,
                       const WeightsNeeded& needed) = 0;
  // Computes backward.
  //   output_gradient: of the stage behind; null in the last. input_gradient: for the stage before;
  //   null in the first.
  virtual void backward(size_t stage, const Pass& pass, const float* output_gradient,
                        float* input_gradient, const GradientReady& ready) = 0;
  // Returns the loss of a micro-batch after forward of the last stage.
  virtual float loss(const Pass& pass) const = 0;
};

}  // namespace pushpull
