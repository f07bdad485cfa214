// A model: forward, loss and backward of one micro-batch over the flat parameter vector, with its
// tensor table in canonical order. One object per compute thread group; not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/device/device_name.h"
#include "common/job/job.h"
#include "common/layout/tensor_table.h"

namespace pushpull {

// Told after backward has finished a tensor's gradient, and of running statistics, with the
// tensor's index in the table. Backward order: the last layer first. Each tensor exactly once per
// call of `train`.
using GradientReady = std::function<void(size_t tensor)>;

// Asked for each tensor (its index in the table) before forward reads it, in forward's order: the
// first layer first. Returns when its weights are there; may throw, and then `train` has not
// happened.
using WeightsNeeded = std::function<void(size_t tensor)>;

struct EvalSums {
  int64_t correct = 0;
  double loss = 0.0;  // sum (not mean) of the samples' losses
};

class DeviceStep;

class Model {
 public:
  virtual ~Model() = default;

  // Shapes, rules and init rules of every tensor. Names and order as PyTorch's state_dict (running
  // statistics included, num_batches_tracked left out).
  const TensorTable& table() const { return table_; }

  // One micro-batch in training mode.
  //   weights: table().total floats. images: [micro_batch, C, H, W], labels: [micro_batch].
  //   gradients: table().total floats, overwritten: gradient of the *mean* loss of the micro-batch
  //   for
  //     kOptimizer tensors, what the batch reports (mean, unbiased variance) for kAverage tensors.
  //   needed: may be empty, where all weights are there.
  // Returns the mean loss (softmax cross-entropy).
  virtual float train(std::span<const float> weights, const float* images, const int32_t* labels,
                      std::span<float> gradients, const GradientReady& ready,
                      const WeightsNeeded& needed = {}) = 0;

  // One chunk in evaluation mode: always computed as job.micro_batch samples, of which the first
  // `valid` count; the rest is padding.
  virtual EvalSums evaluate(std::span<const float> weights, const float* images,
                            const int32_t* labels, int64_t valid) = 0;

  // The way to compute on a device without waiting for it. Null where the model computes on the
  // cpu.
  virtual DeviceStep* device_step() { return nullptr; }
  // Where a model is on several devices: of each of them.
  virtual std::vector<DeviceStep*> device_steps() {
    DeviceStep* const step = device_step();
    return step == nullptr ? std::vector<DeviceStep*>{} : std::vector<DeviceStep*>{step};
  }

  // What must be equal between workers for equal bits (P1): device, instruction set, libraries.
  virtual std::string numerics() const = 0;
  // Algorithms in use where a library has several, as text; bits depend on them. "": nothing to
  // choose. `choose` takes those of a worker with equal numerics, which makes all plans anew and
  // ends device_step(); "" changes nothing. Throws Error(kProtocol) for a text that is none.
  virtual std::string choices() const { return {}; }
  virtual void choose(const std::string& choices) = 0;

 protected:
  TensorTable table_;
};

// The model that job.model names for samples of `input` and `classes`, with micro-batches of
// job.micro_batch.
//   device: on the cpu with job.threads compute threads, or on one GPU.
// Throws Error(kUsage) for an unknown model or a shape that does not fit it; Error(kDevice) for a
// device that cannot be used.
std::unique_ptr<Model> make_model(const Job& job, const InputShape& input, int64_t classes,
                                  const device::DeviceName& device = {});

}  // namespace pushpull
