#include "models/layers.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "models/ops/attention.h"
#include "models/ops/convolution.h"
#include "models/ops/linear.h"
#include "models/ops/norms.h"
#include "models/ops/pointwise.h"
#include "models/ops/pool.h"
#include "models/ops/sequence.h"

namespace pushpull {

namespace {

// Returns x's sizes with another last one.
ops::Shape with_last(const ops::Shape& shape, int64_t last) {
  std::vector<int64_t> sizes = shape.sizes();
  sizes.back() = last;
  return ops::Shape(std::move(sizes));
}

std::shared_ptr<const ops::ConvolutionSpec> convolution_of(const GraphBuilder& graph, Value x,
                                                           int64_t outputs, const Window& window,
                                                           bool bias) {
  const ops::Layout layout = graph.type(x).layout;
  return std::make_shared<ops::ConvolutionSpec>(
      ops::ConvolutionShape{.input = ops::image_of(graph.type(x)),
                            .outputs = outputs,
                            .kernel = window.kernel,
                            .padding = window.padding,
                            .input_layout = layout,
                            .input_gradient = layout == ops::Layout::kNative,
                            .stride = window.stride,
                            .bias = bias});
}

// How the parameters of a linear layer begin.
struct LinearInit {
  Init weight;
  Init bias;
  bool bias_decays = true;
};

// A linear layer over the last dimension of x, or over a whole image, with a bias.
Value linear_layer(GraphBuilder& graph, const std::string& name, Value x,
                   const ops::LinearShape& shape, const LinearInit& init) {
  const ops::Shape& type = graph.shape(x);
  auto spec = std::make_shared<ops::LinearSpec>(
      shape,
      type.rank() == 4 ? ops::Shape{shape.samples, shape.outputs} : with_last(type, shape.outputs));
  // before the parameters are added: their sizes must not overflow
  const std::vector types{graph.type(x)};
  spec->check(name, types);
  const Param weight = graph.param(name + ".weight", spec->params().front().sizes(), init.weight);
  const Param bias = graph.param(name + ".bias", {shape.outputs}, init.bias, init.bias_decays);
  return graph.add(name, std::move(spec), {x}, {weight, bias});
}

// Returns the width of a head. Throws Error(kUsage) if the heads do not divide the width.
int64_t width_of_head(int64_t width, int64_t heads) {
  if (width % heads == 0) return width / heads;
  throw Error(ErrorCode::kUsage, "[models] heads = " + std::to_string(heads) +
                                     " does not divide embed = " + std::to_string(width));
}

}  // namespace

Value linear(GraphBuilder& graph, const std::string& name, Value x, int64_t outputs, bool relu) {
  const ops::Shape& shape = graph.shape(x);
  const int64_t inputs = shape.rank() == 4 ? shape.size() / shape[0] : shape.last();
  return linear_layer(
      graph, name, x,
      {.samples = shape.size() / inputs, .inputs = inputs, .outputs = outputs, .relu = relu},
      {uniform_of(inputs), uniform_of(inputs)});
}

Value linear_on(GraphBuilder& graph, const std::string& name, Value x, Param weight) {
  const ops::Shape& shape = graph.shape(x);
  const std::vector<int64_t>& sizes = graph.shape(weight);
  auto spec =
      std::make_shared<ops::LinearSpec>(ops::LinearShape{.samples = shape.size() / shape.last(),
                                                         .inputs = sizes[1],
                                                         .outputs = sizes[0],
                                                         .bias = false},
                                        with_last(shape, sizes[0]));
  return graph.add(name, std::move(spec), {x}, {weight});
}

Value dense(GraphBuilder& graph, const std::string& name, Value x, int64_t outputs,
            const Init& init) {
  const ops::Shape& shape = graph.shape(x);
  return linear_layer(
      graph, name, x,
      {.samples = shape.size() / shape.last(), .inputs = shape.last(), .outputs = outputs},
      {init, constant(0.0F), false});
}

Value conv1d(GraphBuilder& graph, const std::string& name, Value x, int64_t outputs,
             const Init& init) {
  const ops::Shape& shape = graph.shape(x);
  return linear_layer(graph, name, x,
                      {.samples = shape.size() / shape.last(),
                       .inputs = shape.last(),
                       .outputs = outputs,
                       .transposed = true},
                      {init, constant(0.0F), false});
}

Value embedding(GraphBuilder& graph, const std::string& name, Value ids, Param table) {
  const ops::Shape& shape = graph.shape(ids);
  const std::vector<int64_t>& sizes = graph.shape(table);
  auto spec = std::make_shared<ops::EmbeddingSpec>(ops::EmbeddingShape{
      .samples = shape[0], .positions = shape[1], .vocabulary = sizes[0], .width = sizes[1]});
  return graph.add(name, std::move(spec), {ids}, {table});
}

Value add_positions(GraphBuilder& graph, const std::string& name, Value x, Param table) {
  const ops::Shape& shape = graph.shape(x);
  auto spec = std::make_shared<ops::AddPositionsSpec>(
      ops::AddPositionsShape{.samples = shape[0],
                             .positions = shape[1],
                             .width = shape[2],
                             .limit = graph.shape(table)[0]});
  return graph.add(name, std::move(spec), {x}, {table});
}

Value layer_norm(GraphBuilder& graph, const std::string& name, Value x, bool centred,
                 float epsilon) {
  const ops::Shape& shape = graph.shape(x);
  const int64_t width = shape.last();
  auto spec = std::make_shared<ops::LayerNormSpec>(
      ops::LayerNormShape{
          .rows = shape.size() / width, .width = width, .centred = centred, .epsilon = epsilon},
      shape);
  std::vector<Param> params{graph.param(name + ".weight", {width}, constant(1.0F), false)};
  if (centred) params.push_back(graph.param(name + ".bias", {width}, constant(0.0F), false));
  return graph.add(name, std::move(spec), {x}, params);
}

Value activate(GraphBuilder& graph, const std::string& name, Value x, ops::Function function) {
  return graph.add(name, std::make_shared<ops::ActivateSpec>(function, graph.type(x)), {x});
}

Value dropout(GraphBuilder& graph, const std::string& name, Value x, double p) {
  if (p == 0.0) return x;
  return graph.add(name, std::make_shared<ops::DropoutSpec>(static_cast<float>(p), graph.shape(x)),
                   {x});
}

Value add(GraphBuilder& graph, const std::string& name, Value a, Value b) {
  return graph.add(name, std::make_shared<ops::AddSpec>(graph.type(a)), {a, b});
}

Value self_attention(GraphBuilder& graph, const std::string& name, Value qkv, int64_t heads,
                     bool causal, double dropout) {
  const ops::Shape& shape = graph.shape(qkv);
  auto spec = std::make_shared<ops::AttentionSpec>(
      ops::AttentionShape{.samples = shape[0],
                          .positions = shape[1],
                          .heads = heads,
                          .width = width_of_head(shape[2] / 3, heads),
                          .causal = causal,
                          .packed = true,
                          .mask = false,
                          .dropout = static_cast<float>(dropout)});
  return graph.add(name, std::move(spec), {qkv});
}

Value attention(GraphBuilder& graph, const std::string& name, const Attended& attended, Value mask,
                int64_t heads, double dropout) {
  const ops::Shape& shape = graph.shape(attended.queries);
  auto spec = std::make_shared<ops::AttentionSpec>(
      ops::AttentionShape{.samples = shape[0],
                          .positions = shape[1],
                          .heads = heads,
                          .width = width_of_head(shape[2], heads),
                          .mask = true,
                          .dropout = static_cast<float>(dropout)});
  return graph.add(name, std::move(spec), {attended.queries, attended.keys, attended.values, mask});
}

Value select_last(GraphBuilder& graph, const std::string& name, Value x, int64_t index) {
  const ops::Shape& shape = graph.shape(x);
  const ops::SelectShape select{
      .outer = shape[0] * shape[1], .size = shape[2], .inner = 1, .index = index};
  return graph.add(name, std::make_shared<ops::SelectSpec>(select, ops::Shape{shape[0], shape[1]}),
                   {x});
}

Value select_position(GraphBuilder& graph, const std::string& name, Value x, int64_t index) {
  const ops::Shape& shape = graph.shape(x);
  const ops::SelectShape select{
      .outer = shape[0], .size = shape[1], .inner = shape[2], .index = index};
  return graph.add(name, std::make_shared<ops::SelectSpec>(select, ops::Shape{shape[0], shape[2]}),
                   {x});
}

Value convolution(GraphBuilder& graph, const std::string& name, Value x, int64_t outputs,
                  const Window& window) {
  auto spec = convolution_of(graph, x, outputs, window, true);
  const ops::ConvolutionShape& shape = spec->shape();
  const int64_t fan_in = shape.input.channels * shape.kernel * shape.kernel;
  const Param weight =
      graph.param(name + ".weight", spec->params().front().sizes(), uniform_of(fan_in));
  const Param bias = graph.param(name + ".bias", {outputs}, uniform_of(fan_in));
  return graph.add(name, std::move(spec), {x}, {weight, bias});
}

Value convolution_without_bias(GraphBuilder& graph, const std::string& name, Value x,
                               int64_t outputs, const Window& window) {
  auto spec = convolution_of(graph, x, outputs, window, false);
  const auto fan_out = static_cast<double>(outputs * window.kernel * window.kernel);
  const Param weight = graph.param(name + ".weight", spec->params().front().sizes(),
                                   normal_of(std::sqrt(2.0 / fan_out)));
  return graph.add(name, std::move(spec), {x}, {weight});
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

Value max_pool(GraphBuilder& graph, const std::string& name, Value x, const Window& window) {
  const ops::MaxPoolShape shape{.image = ops::image_of(graph.type(x)),
                                .kernel = window.kernel,
                                .stride = window.stride,
                                .padding = window.padding};
  return graph.add(name, std::make_shared<ops::MaxPoolSpec>(shape), {x});
}

Value average_pool(GraphBuilder& graph, const std::string& name, Value x) {
  const ops::ImageShape image = ops::image_of(graph.type(x));
  return graph.add(name, std::make_shared<ops::AveragePoolSpec>(image), {x});
}

Value flatten(GraphBuilder& graph, const std::string& name, Value x) {
  if (graph.type(x).layout == ops::Layout::kPlain) return x;
  const ops::ImageShape image = ops::image_of(graph.type(x));
  return graph.add(name, std::make_shared<ops::FlattenSpec>(image), {x});
}

}  // namespace pushpull
