#include "models/layers.h"

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/error.h"

namespace pushpull {

namespace {

constexpr float kAverageMomentum = 0.1F;  // torch.nn.BatchNorm2d's default

// A tensor's index in the table and its range of the flat vector.
struct Place {
  size_t index = 0;
  size_t offset = 0;
  const float* in(std::span<const float> weights) const { return weights.data() + offset; }
  float* in(std::span<float> gradients) const { return gradients.data() + offset; }
};

// Kernels count elements in 32 bits.
void check_size(const std::string& what, int64_t rows, int64_t columns) {
  if (rows <= INT32_MAX / columns) return;
  throw Error(ErrorCode::kUsage, "[models] " + what + " would have " + std::to_string(rows) +
                                     " x " + std::to_string(columns) +
                                     " elements, more than 2^31; lower micro-batch or hidden");
}

Place add(TensorTable& table, TensorInfo info) {
  table.add(std::move(info));
  return {table.tensors.size() - 1, static_cast<size_t>(table.tensors.back().offset)};
}

// Uniform in +-1/sqrt(fan_in), for weight and bias: the reset_parameters() of torch.nn.
Place add_uniform(TensorTable& table, const std::string& name, std::vector<int64_t> shape,
                  int64_t fan_in) {
  TensorInfo info;
  info.name = name;
  info.shape = std::move(shape);
  info.init = InitKind::kUniform;
  info.value = static_cast<float>(1.0 / std::sqrt(static_cast<double>(fan_in)));
  return add(table, std::move(info));
}

Place add_constant(TensorTable& table, const std::string& name, int64_t size, float value,
                   UpdateRule rule) {
  TensorInfo info;
  info.name = name;
  info.shape = {size};
  info.rule = rule;
  info.value = value;
  info.average_momentum = kAverageMomentum;
  return add(table, std::move(info));
}

class LinearLayer final : public Layer {
 public:
  LinearLayer(ops::Backend& backend, TensorTable& table, const std::string& name,
              const ops::LinearShape& shape)
      : Layer(static_cast<size_t>(shape.samples * shape.outputs)),
        weight_(add_uniform(table, name + ".weight", {shape.outputs, shape.inputs}, shape.inputs)),
        bias_(add_uniform(table, name + ".bias", {shape.outputs}, shape.inputs)),
        op_(ops::make_linear(backend, shape)) {}

  void forward(const TrainPass& pass, const ops::Activation* x, ops::Activation* y) override {
    evaluate(pass.weights, x, y);
  }

  void evaluate(std::span<const float> weights, const ops::Activation* x,
                ops::Activation* y) override {
    op_->forward(x, weight_.in(weights), bias_.in(weights), y);
  }

  void backward(const TrainPass& pass, const ops::Activation* x, const ops::Activation* y,
                ops::Activation* dy, ops::Activation* dx) override {
    op_->backward_weights(x, y, dy, weight_.in(pass.gradients), bias_.in(pass.gradients));
    pass.ready(bias_.index);
    pass.ready(weight_.index);
    if (dx != nullptr) op_->backward_data(dy, weight_.in(pass.weights), dx);
  }

 private:
  Place weight_;
  Place bias_;
  std::unique_ptr<ops::Linear> op_;
};

class ConvolutionLayer final : public Layer {
 public:
  ConvolutionLayer(ops::Backend& backend, TensorTable& table, const std::string& name,
                   const ops::ConvolutionShape& shape)
      : Layer(backend.image_floats(shape.output(), ops::Layout::kNative)),
        weight_(add_uniform(table, name + ".weight",
                            {shape.outputs, shape.input.channels, shape.kernel, shape.kernel},
                            fan_in(shape))),
        bias_(add_uniform(table, name + ".bias", {shape.outputs}, fan_in(shape))),
        op_(ops::make_convolution(backend, shape)) {}

  void forward(const TrainPass& pass, const ops::Activation* x, ops::Activation* y) override {
    evaluate(pass.weights, x, y);
  }

  void evaluate(std::span<const float> weights, const ops::Activation* x,
                ops::Activation* y) override {
    op_->forward(x, weight_.in(weights), bias_.in(weights), y);
  }

  void backward(const TrainPass& pass, const ops::Activation* x, const ops::Activation* /*y*/,
                ops::Activation* dy, ops::Activation* dx) override {
    op_->backward_weights(x, dy, weight_.in(pass.gradients), bias_.in(pass.gradients));
    pass.ready(bias_.index);
    pass.ready(weight_.index);
    if (dx != nullptr) op_->backward_data(dy, weight_.in(pass.weights), dx);
  }

 private:
  static int64_t fan_in(const ops::ConvolutionShape& shape) {
    return shape.input.channels * shape.kernel * shape.kernel;
  }

  Place weight_;
  Place bias_;
  std::unique_ptr<ops::Convolution> op_;
};

class BatchNormLayer final : public Layer {
 public:
  BatchNormLayer(ops::Backend& backend, TensorTable& table, const std::string& name,
                 const ops::BatchNormShape& shape)
      : Layer(backend.image_floats(shape.image, ops::Layout::kNative)),
        scale_(add_constant(table, name + ".weight", shape.image.channels, 1.0F,
                            UpdateRule::kOptimizer)),
        shift_(add_constant(table, name + ".bias", shape.image.channels, 0.0F,
                            UpdateRule::kOptimizer)),
        mean_(add_constant(table, name + ".running_mean", shape.image.channels, 0.0F,
                           UpdateRule::kAverage)),
        variance_(add_constant(table, name + ".running_var", shape.image.channels, 1.0F,
                               UpdateRule::kAverage)),
        op_(ops::make_batch_norm(backend, shape)) {}

  void forward(const TrainPass& pass, const ops::Activation* x, ops::Activation* y) override {
    op_->forward(x, scale_.in(pass.weights), shift_.in(pass.weights), mean_.in(pass.gradients),
                 variance_.in(pass.gradients), y);
  }

  void evaluate(std::span<const float> weights, const ops::Activation* x,
                ops::Activation* y) override {
    op_->infer(x, scale_.in(weights), shift_.in(weights), mean_.in(weights), variance_.in(weights),
               y);
  }

  void backward(const TrainPass& pass, const ops::Activation* x, const ops::Activation* /*y*/,
                ops::Activation* dy, ops::Activation* dx) override {
    PP_ASSERT(dx != nullptr);
    op_->backward(x, dy, scale_.in(pass.weights), shift_.in(pass.weights), dx,
                  scale_.in(pass.gradients), shift_.in(pass.gradients));
    for (const Place& place : {variance_, mean_, shift_, scale_}) pass.ready(place.index);
  }

 private:
  Place scale_;
  Place shift_;
  Place mean_;
  Place variance_;
  std::unique_ptr<ops::BatchNorm> op_;
};

class MaxPoolLayer final : public Layer {
 public:
  MaxPoolLayer(ops::Backend& backend, const ops::MaxPoolShape& shape)
      : Layer(backend.image_floats(shape.output(), ops::Layout::kNative)),
        op_(ops::make_max_pool(backend, shape)) {}

  void forward(const TrainPass& /*pass*/, const ops::Activation* x, ops::Activation* y) override {
    op_->forward(x, y);
  }
  void evaluate(std::span<const float> /*weights*/, const ops::Activation* x,
                ops::Activation* y) override {
    op_->forward(x, y);
  }
  void backward(const TrainPass& /*pass*/, const ops::Activation* /*x*/,
                const ops::Activation* /*y*/, ops::Activation* dy, ops::Activation* dx) override {
    op_->backward(dy, dx);
  }

 private:
  std::unique_ptr<ops::MaxPool> op_;
};

class FlattenLayer final : public Layer {
 public:
  FlattenLayer(ops::Backend& backend, const ops::ImageShape& shape)
      : Layer(static_cast<size_t>(shape.size())), op_(ops::make_relayout(backend, shape)) {}

  void forward(const TrainPass& /*pass*/, const ops::Activation* x, ops::Activation* y) override {
    op_->to_plain(x, y);
  }
  void evaluate(std::span<const float> /*weights*/, const ops::Activation* x,
                ops::Activation* y) override {
    op_->to_plain(x, y);
  }
  void backward(const TrainPass& /*pass*/, const ops::Activation* /*x*/,
                const ops::Activation* /*y*/, ops::Activation* dy, ops::Activation* dx) override {
    op_->to_native(dy, dx);
  }

 private:
  std::unique_ptr<ops::Relayout> op_;
};

}  // namespace

std::unique_ptr<Layer> make_linear_layer(ops::Backend& backend, TensorTable& table,
                                         const std::string& name, const ops::LinearShape& shape) {
  check_size(name + "'s weight", shape.outputs, shape.inputs);
  check_size(name + "'s input", shape.samples, shape.inputs);
  check_size(name + "'s output", shape.samples, shape.outputs);
  return std::make_unique<LinearLayer>(backend, table, name, shape);
}

std::unique_ptr<Layer> make_convolution_layer(ops::Backend& backend, TensorTable& table,
                                              const std::string& name,
                                              const ops::ConvolutionShape& shape) {
  const ops::ImageShape y = shape.output();
  check_size(name + "'s output", y.samples * y.channels, y.height * y.width);
  return std::make_unique<ConvolutionLayer>(backend, table, name, shape);
}

std::unique_ptr<Layer> make_batch_norm_layer(ops::Backend& backend, TensorTable& table,
                                             const std::string& name,
                                             const ops::BatchNormShape& shape) {
  return std::make_unique<BatchNormLayer>(backend, table, name, shape);
}

std::unique_ptr<Layer> make_max_pool_layer(ops::Backend& backend, const ops::MaxPoolShape& shape) {
  return std::make_unique<MaxPoolLayer>(backend, shape);
}

std::unique_ptr<Layer> make_flatten_layer(ops::Backend& backend, const ops::ImageShape& shape) {
  return std::make_unique<FlattenLayer>(backend, shape);
}

}  // namespace pushpull
