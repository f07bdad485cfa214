// Layers: an operation with its tensors in the flat vector. Written once, above the operations of
// any backend. A layer adds its tensors to the table when it is made, in state_dict order.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "common/layout/tensor_table.h"
#include "models/model.h"
#include "models/ops/ops.h"

namespace pushpull {

// Memory of the backend for one micro-batch in training mode.
struct TrainPass {
  std::span<const float> weights;  // the flat vector
  std::span<float> gradients;      // as Model::train fills it
  const GradientReady& ready;      // called once the gradient's run is enqueued
};

class Layer {
 public:
  virtual ~Layer() = default;

  size_t output_floats() const { return output_floats_; }

  // x: input, kept unchanged until `backward` -> y: output_floats().
  virtual void forward(const TrainPass& pass, const ops::Activation* x, ops::Activation* y) = 0;
  // The same in evaluation mode.
  virtual void evaluate(std::span<const float> weights, const ops::Activation* x,
                        ops::Activation* y) = 0;
  // x, y: of forward. dy: gradient of y, may be overwritten -> dx, unless it is null (first layer).
  // Tells pass.ready each of the layer's tensors, as soon as its gradient is final.
  virtual void backward(const TrainPass& pass, const ops::Activation* x, const ops::Activation* y,
                        ops::Activation* dy, ops::Activation* dx) = 0;

 protected:
  explicit Layer(size_t output_floats) : output_floats_(output_floats) {}

 private:
  size_t output_floats_;
};

// torch.nn.Linear, with the ReLU that follows it where shape.relu.
// Adds NAME.weight [M, K], NAME.bias [M].
std::unique_ptr<Layer> make_linear_layer(ops::Backend& backend, TensorTable& table,
                                         const std::string& name, const ops::LinearShape& shape);

// torch.nn.Conv2d. Adds NAME.weight [O, C, k, k], NAME.bias [O].
std::unique_ptr<Layer> make_convolution_layer(ops::Backend& backend, TensorTable& table,
                                              const std::string& name,
                                              const ops::ConvolutionShape& shape);

// torch.nn.BatchNorm2d with momentum 0.1, and the ReLU that follows it where shape.relu.
// Adds NAME.weight, NAME.bias, NAME.running_mean, NAME.running_var [C].
std::unique_ptr<Layer> make_batch_norm_layer(ops::Backend& backend, TensorTable& table,
                                             const std::string& name,
                                             const ops::BatchNormShape& shape);

// torch.nn.MaxPool2d(2).
std::unique_ptr<Layer> make_max_pool_layer(ops::Backend& backend, const ops::MaxPoolShape& shape);

// torch.nn.Flatten: from the backend's layout to [N, C * H * W].
std::unique_ptr<Layer> make_flatten_layer(ops::Backend& backend, const ops::ImageShape& shape);

}  // namespace pushpull
