#include "models/graph.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "common/base/error.h"
#include "models/ops/losses.h"
#include "models/ops/pointwise.h"

namespace pushpull {

namespace {

constexpr float kAverageMomentum = 0.1F;  // torch.nn.BatchNorm2d's default

// targets: of a micro-batch.
std::shared_ptr<const ops::Spec> loss_of(const Head& head, int64_t targets, int64_t classes) {
  if (head.loss == Loss::kSquaredError) return std::make_shared<ops::SquaredErrorSpec>(targets);
  return std::make_shared<ops::CrossEntropySpec>(
      ops::CrossEntropyShape{targets, classes},
      ops::CrossEntropyOptions{head.ignored, head.smoothing, head.class_weights});
}

}  // namespace

Init constant(float value) { return {InitKind::kConstant, value}; }

Init uniform_of(int64_t fan_in) {
  return {InitKind::kUniform, static_cast<float>(1.0 / std::sqrt(static_cast<double>(fan_in)))};
}

Init normal_of(double deviation) { return {InitKind::kNormal, static_cast<float>(deviation)}; }

GraphBuilder::GraphBuilder(std::string model, std::string dataset, int64_t samples,
                           const FieldTable& fields)
    : model_(std::move(model)), dataset_(std::move(dataset)) {
  graph_.samples = samples;
  graph_.fields = fields;
}

const FieldInfo& GraphBuilder::field(const std::string& name) const {
  const std::optional<size_t> found = graph_.fields.find(name);
  if (found) return graph_.fields.fields[*found];
  throw Error(ErrorCode::kUsage, "[models] model = " + model_ + " needs the field " + name +
                                     "; dataset = " + dataset_ + " has " + graph_.fields.names() +
                                     ": choose another dataset or model");
}

int32_t GraphBuilder::add_value(ops::ValueType type, int32_t field) {
  graph_.values.push_back(std::move(type));
  graph_.field_of_value.push_back(field);
  return static_cast<int32_t>(graph_.values.size()) - 1;
}

int32_t GraphBuilder::raw(const std::string& name) {
  const FieldInfo& info = field(name);
  const auto index = static_cast<int32_t>(&info - graph_.fields.fields.data());
  const auto known = std::ranges::find(graph_.field_of_value, index);
  if (known != graph_.field_of_value.end()) {
    return static_cast<int32_t>(known - graph_.field_of_value.begin());
  }
  std::vector<int64_t> sizes{graph_.samples};
  sizes.insert(sizes.end(), info.shape.begin(), info.shape.end());
  const bool is_int = info.type == FieldType::kInt;
  return add_value({is_int ? ops::Element::kInt : ops::Element::kFloat, ops::Layout::kPlain,
                    ops::Shape(std::move(sizes))},
                   index);
}

Value GraphBuilder::input(const std::string& name) {
  const Value value{raw(name)};
  if (type(value).element == ops::Element::kInt) return value;
  return add(name, std::make_shared<ops::ElementsSpec>(type(value).shape), {value});
}

Param GraphBuilder::param(const std::string& name, std::vector<int64_t> shape, const Init& init,
                          bool decay) {
  TensorInfo info;
  info.name = name;
  info.shape = std::move(shape);
  info.init = init.kind;
  info.value = init.value;
  info.decay = decay;
  graph_.table.add(std::move(info));
  return {static_cast<int32_t>(graph_.table.tensors.size()) - 1};
}

Param GraphBuilder::statistic(const std::string& name, int64_t size, float value) {
  TensorInfo info;
  info.name = name;
  info.shape = {size};
  info.rule = UpdateRule::kAverage;
  info.value = value;
  info.average_momentum = kAverageMomentum;
  graph_.table.add(std::move(info));
  return {static_cast<int32_t>(graph_.table.tensors.size()) - 1};
}

Value GraphBuilder::add(const std::string& name, std::shared_ptr<const ops::Spec> spec,
                        const std::vector<Value>& inputs, const std::vector<Param>& params) {
  PP_ASSERT(inputs.size() <= ops::kMaxInputs && params.size() <= ops::kMaxParams);
  GraphNode node{.name = name, .spec = std::move(spec), .inputs = {}, .params = {}};
  std::vector<ops::ValueType> types;
  for (const Value input : inputs) {
    types.push_back(type(input));
    node.inputs.push_back(input.index);
  }
  node.spec->check(name, types);
  const std::vector<ops::Shape> shapes = node.spec->params();
  PP_ASSERT(shapes.size() == params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    const auto index = static_cast<size_t>(params[i].index);
    PP_ASSERT(graph_.table.tensors.at(index).shape == shapes[i].sizes());
    node.params.push_back(params[i].index);
  }
  node.output = add_value(node.spec->output(), -1);
  graph_.nodes.push_back(std::move(node));
  return {graph_.nodes.back().output};
}

void GraphBuilder::head(const Head& head, Value scores, const std::string& target_field) {
  GraphHead out{.head = head, .spec = {}, .scores = scores.index, .target = raw(target_field)};
  out.targets = type({out.target}).shape.size() / graph_.samples;
  const int64_t targets = graph_.samples * out.targets;
  out.spec = loss_of(head, targets, type(scores).shape.last());
  const std::vector types{type(scores), type({out.target})};
  out.spec->check(head.name, types);
  graph_.heads.push_back(std::move(out));
}

const ops::ValueType& GraphBuilder::type(Value value) const {
  return graph_.values.at(static_cast<size_t>(value.index));
}

const std::vector<int64_t>& GraphBuilder::shape(Param param) const {
  return graph_.table.tensors.at(static_cast<size_t>(param.index)).shape;
}

Graph GraphBuilder::take() {
  PP_ASSERT(!graph_.heads.empty());
  std::vector<bool> used(graph_.table.tensors.size());
  for (const GraphNode& node : graph_.nodes) {
    for (const int32_t param : node.params) used[static_cast<size_t>(param)] = true;
  }
  PP_ASSERT(std::ranges::find(used, false) == used.end());
  return std::move(graph_);
}

void set_head_options(Graph& graph, const HeadWeights& weights, double smoothing) {
  for (const auto& [name, weight] : weights.weights) {
    const auto named =
        std::ranges::find(graph.heads, name, [](const GraphHead& head) { return head.head.name; });
    if (named == graph.heads.end()) {
      std::string names;
      for (const GraphHead& head : graph.heads)
        names += (names.empty() ? "" : ", ") + head.head.name;
      throw Error(ErrorCode::kUsage, "[models] head-weights names '" + name +
                                         "'; the heads of this model are " + names);
    }
    named->head.weight = static_cast<float>(weight);
  }
  for (GraphHead& head : graph.heads) {
    if (smoothing == 0.0 || head.head.loss != Loss::kCrossEntropy) continue;
    head.head.smoothing = static_cast<float>(smoothing);
    const int64_t classes = graph.values.at(static_cast<size_t>(head.scores)).shape.last();
    head.spec = loss_of(head.head, graph.samples * head.targets, classes);
  }
}

size_t first_result(const Graph& graph, size_t head) {
  int64_t targets = 0;
  for (size_t h = 0; h < head; ++h) targets += graph.heads[h].targets;
  return static_cast<size_t>(graph.samples * targets);
}

std::vector<size_t> own_tensors(const Graph& graph) {
  std::set<size_t> own;
  for (const GraphNode& node : graph.nodes) {
    for (const int32_t param : node.params) own.insert(static_cast<size_t>(param));
  }
  for (const int32_t tensor : graph.edges.before) own.erase(static_cast<size_t>(tensor));
  return {own.begin(), own.end()};
}

std::vector<HeadInfo> head_infos(const Graph& graph) {
  std::vector<HeadInfo> infos;
  for (const GraphHead& head : graph.heads) {
    infos.push_back({head.head.name, head.head.metric, head.targets});
  }
  return infos;
}

}  // namespace pushpull
