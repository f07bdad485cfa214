// Layers: operations bound to their tensors in the flat vector, written once for all backends. A
// layer adds its tensors to the table when it is created, in state_dict order. Not thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "models/model.h"
#include "models/ops/ops.h"

namespace pushpull {

struct TensorTable;

// Memory of the backend for one training micro-batch.
struct TrainPass {
  std::span<const float> weights;  // the flat vector
  std::span<float> gradients;      // written as by Model::train
  const GradientReady& ready;      // called once the gradient's computation is enqueued
};

class Layer {
 public:
  virtual ~Layer() = default;

  size_t output_floats() const { return output_floats_; }

  // x: input, kept unchanged until `backward`.
  // y: output_floats() elements, written.
  virtual void forward(const TrainPass& pass, const ops::Activation* x, ops::Activation* y) = 0;
  // Forward in evaluation mode.
  virtual void evaluate(std::span<const float> weights, const ops::Activation* x,
                        ops::Activation* y) = 0;
  // Calls pass.ready for each of the layer's tensors as soon as its gradient is final.
  //   x, y: as in `forward`.
  //   dy: gradient of y; may be overwritten.
  //   dx: gradient of x, written; null for the first layer.
  virtual void backward(const TrainPass& pass, const ops::Activation* x, const ops::Activation* y,
                        ops::Activation* dy, ops::Activation* dx) = 0;

 protected:
  explicit Layer(size_t output_floats) : output_floats_(output_floats) {}

 private:
  size_t output_floats_;
};

// torch.nn.Linear, followed by ReLU if shape.relu. Adds NAME.weight [M, K] and NAME.bias [M].
std::unique_ptr<Layer> make_linear_layer(ops::Backend& backend, TensorTable& table,
                                         const std::string& name, const ops::LinearShape& shape);

// torch.nn.Conv2d. Adds NAME.weight [O, C, k, k] and NAME.bias [O].
std::unique_ptr<Layer> make_convolution_layer(ops::Backend& backend, TensorTable& table,
                                              const std::string& name,
                                              const ops::ConvolutionShape& shape);

// torch.nn.BatchNorm2d with momentum 0.1, followed by ReLU if shape.relu. Adds NAME.weight,
// NAME.bias, NAME.running_mean and NAME.running_var [C].
std::unique_ptr<Layer> make_batch_norm_layer(ops::Backend& backend, TensorTable& table,
                                             const std::string& name,
                                             const ops::BatchNormShape& shape);

// torch.nn.MaxPool2d(2).
std::unique_ptr<Layer> make_max_pool_layer(ops::Backend& backend, const ops::MaxPoolShape& shape);

// torch.nn.Flatten: from the backend's layout to [N, C * H * W].
std::unique_ptr<Layer> make_flatten_layer(ops::Backend& backend, const ops::ImageShape& shape);

}  // namespace pushpull
