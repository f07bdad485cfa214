#include "models/graph/layers.h"

#include <memory>

#include "models/ops/batch_norm.h"
#include "models/ops/convolution.h"
#include "models/ops/flatten.h"
#include "models/ops/linear.h"
#include "models/ops/max_pool.h"

namespace pushpull {

Value linear(GraphBuilder& graph, const std::string& name, Value x, int64_t outputs, bool relu) {
  const ops::Shape& shape = graph.type(x).shape;
  const int64_t rows = shape[0];
  const int64_t inputs = shape.size() / rows;
  // checked before the parameters are added: their sizes must not overflow
  auto spec = std::make_shared<ops::LinearSpec>(
      ops::LinearShape{.samples = rows, .inputs = inputs, .outputs = outputs, .relu = relu});
  const std::vector types{graph.type(x)};
  spec->check(name, types);
  const Param weight = graph.param(name + ".weight", {outputs, inputs}, uniform_of(inputs));
  const Param bias = graph.param(name + ".bias", {outputs}, uniform_of(inputs));
  return graph.add(name, std::move(spec), {x}, {weight, bias});
}

Value convolution(GraphBuilder& graph, const std::string& name, Value x, int64_t outputs,
                  int64_t kernel, int64_t padding) {
  const ops::ImageShape image = ops::image_of(graph.type(x));
  const int64_t fan_in = image.channels * kernel * kernel;
  const Param weight =
      graph.param(name + ".weight", {outputs, image.channels, kernel, kernel}, uniform_of(fan_in));
  const Param bias = graph.param(name + ".bias", {outputs}, uniform_of(fan_in));
  const ops::Layout layout = graph.type(x).layout;
  auto spec = std::make_shared<ops::ConvolutionSpec>(
      ops::ConvolutionShape{.input = image,
                            .outputs = outputs,
                            .kernel = kernel,
                            .padding = padding,
                            .input_layout = layout,
                            .input_gradient = layout == ops::Layout::kNative});
  return graph.add(name, std::move(spec), {x}, {weight, bias});
}

Value batch_norm(GraphBuilder& graph, const std::string& name, Value x, bool relu) {
  const ops::ImageShape image = ops::image_of(graph.type(x));
  const Param scale = graph.param(name + ".weight", {image.channels}, constant(1.0F));
  const Param shift = graph.param(name + ".bias", {image.channels}, constant(0.0F));
  const Param mean = graph.statistic(name + ".running_mean", image.channels, 0.0F);
  const Param variance = graph.statistic(name + ".running_var", image.channels, 1.0F);
  return graph.add(
      name, std::make_shared<ops::BatchNormSpec>(ops::BatchNormShape{.image = image, .relu = relu}),
      {x}, {scale, shift, mean, variance});
}

Value max_pool(GraphBuilder& graph, const std::string& name, Value x) {
  const ops::MaxPoolShape shape{ops::image_of(graph.type(x))};
  return graph.add(name, std::make_shared<ops::MaxPoolSpec>(shape), {x});
}

Value flatten(GraphBuilder& graph, const std::string& name, Value x) {
  if (graph.type(x).layout == ops::Layout::kPlain) return x;
  const ops::ImageShape image = ops::image_of(graph.type(x));
  return graph.add(name, std::make_shared<ops::FlattenSpec>(image), {x});
}

}  // namespace pushpull
