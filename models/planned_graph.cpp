#include "models/planned_graph.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "models/ops/pointwise.h"

namespace pushpull {

namespace {

size_t index(int32_t i) { return static_cast<size_t>(i); }

// Plans the operation of a node. The text of an error begins with the node's name, after its tag.
std::unique_ptr<ops::Operation> plan_of(ops::Backend& backend, const std::string& node,
                                        const ops::Spec& spec) {
  try {
    return backend.plan(spec);
  } catch (const Error& error) {
    const std::string text = error.what();
    const size_t end = text.find("] ");
    const bool is_ours = error.code() == ErrorCode::kUsage || error.code() == ErrorCode::kDevice;
    if (!is_ours || end == std::string::npos) throw;
    throw Error(error.code(), text.substr(0, end + 2) + node + ": " + text.substr(end + 2));
  }
}

}  // namespace

PlannedGraph::PlannedGraph(std::unique_ptr<ops::Backend> backend, Graph graph, size_t slots)
    : backend_(std::move(backend)),
      graph_(std::move(graph)),
      layout_(graph_.fields, graph_.samples),
      slots_(slots) {
  plan();
}

void PlannedGraph::plan() {
  const ops::Backend::Scope scope(*backend_);
  GraphNeeds needs;
  random_nodes_ = 0;
  for (const GraphNode& node : graph_.nodes) {
    nodes_.push_back({.op = plan_of(*backend_, node.name, *node.spec)});
    nodes_.back().needs = nodes_.back().op->needs();
    nodes_.back().key = node.spec->is_random() ? random_nodes_++ : 0;
    needs.nodes.push_back(nodes_.back().needs);
  }
  for (const GraphHead& head : graph_.heads) {
    heads_.push_back({.op = plan_of(*backend_, head.head.name, *head.spec)});
    heads_.back().needs = heads_.back().op->needs();
    needs.heads.push_back(heads_.back().needs);
  }
  for (const ops::ValueType& type : graph_.values) {
    const size_t floats = ops::floats_of(*backend_, type);
    needs.value_bytes.push_back(floats * sizeof(float));
    needs.padded.push_back(
        floats > ops::floats_of(*backend_, {type.element, ops::Layout::kPlain, type.shape}));
  }
  memory_ = plan_graph_memory(graph_, needs);
  const std::vector<size_t> own = own_tensors(graph_);
  first_tensor_ = own.empty() ? graph_.table.tensors.size() : own.front();
  plan_sums();
  plan_ready();
  views_.assign(slots_ * graph_.values.size(), nullptr);
  bounds_.assign(graph_.table.tensors.size(), 0.0);
  arena_ = backend_->allocate(arena_bytes() / sizeof(float));
}

void PlannedGraph::plan_sums() {
  const auto plan_sum = [this](ops::ValueType type, size_t input) {
    return Sum{backend_->plan(ops::AddSpec(std::move(type))), input};
  };
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const GraphNode& node = graph_.nodes[i];
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (memory_.nodes[i].sums.at(k) < 0) continue;
      nodes_[i].sums.push_back(plan_sum(graph_.values[index(node.inputs[k])], k));
    }
    for (size_t k = 0; k < node.params.size(); ++k) {
      if (memory_.nodes[i].param_sums.at(k) < 0) continue;
      const ops::Shape shape(graph_.table.tensors[index(node.params[k])].shape);
      nodes_[i].param_sums.push_back(
          plan_sum({ops::Element::kFloat, ops::Layout::kPlain, shape}, k));
    }
  }
  for (size_t h = 0; h < heads_.size(); ++h) {
    if (memory_.heads[h].sums[0] < 0) continue;
    heads_[h].sums.push_back(plan_sum(graph_.values[index(graph_.heads[h].scores)], 0));
  }
}

// Backward visits the nodes from the last one, so the first node that reads a tensor writes its
// gradient last.
void PlannedGraph::plan_ready() {
  std::vector<bool> seen(graph_.table.tensors.size(), false);
  for (const int32_t tensor : graph_.edges.before) seen[index(tensor)] = true;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    const std::vector<int32_t>& params = graph_.nodes[i].params;
    for (size_t k = 0; k < params.size(); ++k) {
      const size_t tensor = index(params[k]);
      if (seen[tensor]) continue;
      seen[tensor] = true;
      const bool is_early = node.needs.splits && memory_.nodes[i].param_sums.at(k) < 0;
      std::vector<size_t>& ready = is_early ? node.ready_early : node.ready;
      ready.insert(ready.begin(), tensor);
    }
  }
}

void PlannedGraph::choose(const std::string& choices) {
  nodes_.clear();
  heads_.clear();
  arena_ = {};
  backend_->choose(choices);
  plan();
}

const float* PlannedGraph::losses(size_t slot) const {
  return static_cast<const float*>(at(memory_.results, slot));
}

const int32_t* PlannedGraph::predictions(size_t slot) const {
  return reinterpret_cast<const int32_t*>(losses(slot) + memory_.result_words);
}

std::span<const float> PlannedGraph::scores() const {
  if (backend_->device() != nullptr || backend_->activation_bytes() != sizeof(float)) return {};
  const size_t value = index(graph_.heads.front().scores);
  return {static_cast<const float*>(at(memory_.values[value], 0)),
          static_cast<size_t>(graph_.values[value].shape.size())};
}

void* PlannedGraph::at(int32_t region, size_t slot) const {
  PP_ASSERT(region >= 0 && slot < slots_);
  const size_t bytes = slot * memory_.plan.bytes + memory_.plan.offsets[index(region)];
  return arena_.data() + bytes / sizeof(float);
}

size_t PlannedGraph::bytes_of(int32_t value) const {
  if (value < 0) return 0;
  return ops::floats_of(*backend_, graph_.values[index(value)]) * sizeof(float);
}

size_t PlannedGraph::view_of(int32_t value, size_t slot) const {
  return slot * graph_.values.size() + index(value);
}

const void* PlannedGraph::value(int32_t value, const Batch& batch) const {
  const int32_t field = graph_.field_of_value[index(value)];
  if (field >= 0) return batch.block + layout_.offset(index(field));
  const int32_t region = memory_.values[index(value)];
  return region < 0 ? views_[view_of(value, batch.slot)] : at(region, batch.slot);
}

ops::Run PlannedGraph::bind(size_t i, const Batch& batch) const {
  const GraphNode& node = graph_.nodes[i];
  const GraphMemory::Node& memory = memory_.nodes[i];
  ops::Run run;
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    run.x.at(k).data = value(node.inputs[k], batch);
  }
  const int32_t y = memory_.values[index(node.output)];
  if (y >= 0) run.y.data = at(y, batch.slot);
  for (size_t k = 0; k < node.params.size(); ++k) {
    const auto offset = static_cast<size_t>(graph_.table.tensors[index(node.params[k])].offset);
    run.w.at(k) = batch.weights.data() + offset;
    if (memory.param_sums.at(k) >= 0) {
      run.dw.at(k) = static_cast<float*>(at(memory.param_sums.at(k), batch.slot));
    } else if (!batch.gradients.empty()) {
      run.dw.at(k) = batch.gradients.data() + offset;
    }
  }
  run.adds = memory.adds;
  if (memory.kept >= 0) run.kept = at(memory.kept, batch.slot);
  if (batch.keys != nullptr) run.key = batch.keys + nodes_[i].key;
  return run;
}

ops::Run PlannedGraph::bind_head(size_t h, const Batch& batch) const {
  const GraphHead& head = graph_.heads[h];
  ops::Run run;
  run.x[0].data = value(head.scores, batch);
  run.x[1].data = value(head.target, batch);
  const size_t first = first_result(graph_, h);
  auto* results = static_cast<float*>(at(memory_.results, batch.slot));
  run.y.data = results + first;
  run.predictions.data = results + memory_.result_words + first;
  const int32_t kept = memory_.heads[h].kept;
  if (kept >= 0) run.kept = at(kept, batch.slot);
  if (batch.scales != nullptr) run.scale = batch.scales + h;
  run.valid = graph_.samples * head.targets;
  run.training = true;
  return run;
}

void PlannedGraph::forward_node(size_t i, const Batch& batch, bool training) {
  ops::Run run = bind(i, batch);
  run.training = training;
  if (nodes_[i].needs.is_view) {
    views_[view_of(graph_.nodes[i].output, batch.slot)] = nodes_[i].op->view(run);
  } else {
    nodes_[i].op->forward(run);
  }
}

void PlannedGraph::forward_heads(const Batch& batch) {
  for (size_t h = 0; h < heads_.size(); ++h) {
    ops::Run run = bind_head(h, batch);
    run.predictions.data = nullptr;
    heads_[h].op->forward(run);
  }
}

void PlannedGraph::train(const Batch& batch, const TensorHook& ready, const TensorHook& needed) {
  forward(batch, needed);
  backward(batch, ready);
}

void PlannedGraph::forward(const Batch& batch, const TensorHook& needed) {
  size_t tensor = first_tensor_;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (needed) {
      for (const int32_t param : graph_.nodes[i].params) {
        if (index(param) < first_tensor_) needed(index(param));  // a stage before has it, too
        while (tensor <= index(param)) needed(tensor++);
      }
    }
    forward(batch, i, i + 1);
  }
}

void PlannedGraph::forward(const Batch& batch, size_t begin, size_t end) {
  PP_ASSERT(batch.weights.size() == static_cast<size_t>(table().total));
  PP_ASSERT(batch.gradients.empty() || batch.gradients.size() == batch.weights.size());
  PP_ASSERT(begin <= end && end <= nodes_.size());
  const ops::Backend::Scope scope(*backend_);
  for (size_t i = begin; i < end; ++i) forward_node(i, batch, true);
  if (end == nodes_.size()) forward_heads(batch);
}

void PlannedGraph::backward(const Batch& batch, const TensorHook& ready) {
  PP_ASSERT(batch.gradients.size() == batch.weights.size());
  const ops::Backend::Scope scope(*backend_);
  std::ranges::fill(bounds_, 0.0);
  for (size_t h = heads_.size(); h-- > 0;) backward_head(h, batch);
  for (size_t i = nodes_.size(); i-- > 0;) backward_node(i, batch, ready);
}

void PlannedGraph::add_to(const Sum& sum, void* total, const void* part) const {
  ops::Run run;
  run.x[0].data = total;
  run.x[1].data = part;
  run.y.data = total;
  sum.op->forward(run);
}

void PlannedGraph::backward_head(size_t h, const Batch& batch) {
  const int32_t gradient = memory_.gradients[index(graph_.heads[h].scores)];
  if (gradient < 0) return;
  ops::Run run = bind_head(h, batch);
  const int32_t sum = memory_.heads[h].sums[0];
  void* total = at(gradient, batch.slot);
  run.dx[0].data = sum < 0 ? total : at(sum, batch.slot);
  heads_[h].op->backward_weights(run);
  heads_[h].op->backward_data(run);
  if (sum >= 0) add_to(heads_[h].sums[0], total, run.dx[0].data);
}

void PlannedGraph::backward_node(size_t i, const Batch& batch, const TensorHook& ready) {
  const GraphNode& node = graph_.nodes[i];
  const int32_t dy = memory_.gradients[index(node.output)];
  if (dy < 0) return;
  const GraphMemory::Node& memory = memory_.nodes[i];
  ops::Run run = bind(i, batch);
  run.training = true;
  run.dy.data = at(dy, batch.slot);
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    const int32_t own = memory_.gradients[index(node.inputs[k])];
    const int32_t place = memory.sums.at(k) >= 0 ? memory.sums.at(k) : own;
    if (place >= 0) run.dx.at(k).data = at(place, batch.slot);
  }
  nodes_[i].op->backward_weights(run);
  add_bounds(i, run);
  for (const size_t tensor : nodes_[i].ready_early) ready(tensor);
  nodes_[i].op->backward_data(run);
  for (const Sum& sum : nodes_[i].sums) {
    const int32_t total = memory_.gradients[index(node.inputs[sum.input])];
    add_to(sum, at(total, batch.slot), run.dx.at(sum.input).data);
  }
  for (const Sum& sum : nodes_[i].param_sums) {
    const auto offset = static_cast<size_t>(table().tensors[index(node.params[sum.input])].offset);
    add_to(sum, batch.gradients.data() + offset, run.dw.at(sum.input));
  }
  for (const size_t tensor : nodes_[i].ready) ready(tensor);
}

// A tensor that several nodes read has the sum of their gradients.
void PlannedGraph::add_bounds(size_t i, const ops::Run& run) {
  const std::vector<int32_t>& params = graph_.nodes[i].params;
  if (params.empty()) return;
  const ops::GradientBounds bounds = nodes_[i].op->bounds(run);
  for (size_t k = 0; k < params.size(); ++k) bounds_[index(params[k])] += bounds.at(k);
}

void PlannedGraph::evaluate(std::span<const float> weights, const float* block, int64_t valid) {
  PP_ASSERT(weights.size() == static_cast<size_t>(table().total));
  const ops::Backend::Scope scope(*backend_);
  const Batch batch{.weights = weights, .block = block};
  for (size_t i = 0; i < nodes_.size(); ++i) forward_node(i, batch, false);
  for (size_t h = 0; h < heads_.size(); ++h) {
    ops::Run run = bind_head(h, batch);
    run.training = false;
    run.valid = valid * graph_.heads[h].targets;
    if (graph_.heads[h].head.loss != Loss::kCrossEntropy) run.predictions.data = nullptr;
    heads_[h].op->forward(run);
  }
}

}  // namespace pushpull
