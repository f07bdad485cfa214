#include "models/graph_model.h"

#include <utility>

#include "common/base/error.h"
#include "common/base/random.h"
#include "models/batch_results.h"

namespace pushpull {

GraphModel::GraphModel(std::unique_ptr<PlannedGraph> graph, uint64_t seed)
    : graph_(std::move(graph)), seed_(seed) {
  table_ = graph_->table();
  heads_ = head_infos(graph_->graph());
  keys_.resize(graph_->random_nodes());
  denominators_.resize(heads_.size());
  scales_.resize(heads_.size());
}

float GraphModel::train(std::span<const float> weights, const Samples& samples,
                        std::span<float> gradients, const GradientReady& ready,
                        const WeightsNeeded& needed) {
  PP_ASSERT(weights.size() == static_cast<size_t>(table_.total));
  PP_ASSERT(gradients.size() == weights.size());
  if (graph_->backend().device() != nullptr) {
    return train_on_device(weights, samples, gradients, ready, needed);
  }
  const Graph& graph = graph_->graph();
  check_samples(graph, graph_->layout(), samples, graph.samples);
  for (size_t i = 0; i < keys_.size(); ++i) {
    keys_[i] = random_key(seed_, samples.step, samples.micro_batch, static_cast<uint32_t>(i));
  }
  for (size_t h = 0; h < heads_.size(); ++h) {
    denominators_[h] = denominator_of(graph, h, graph_->layout(), samples);
    scales_[h] = scale_of(graph.heads[h], denominators_[h]);
  }
  graph_->train({.weights = weights,
                 .block = samples.block.data(),
                 .keys = keys_.data(),
                 .scales = scales_.data(),
                 .gradients = gradients},
                ready, needed);
  return batch_loss(graph, {graph_->losses(), graph_->result_words()}, denominators_);
}

float GraphModel::train_on_device(std::span<const float> weights, const Samples& samples,
                                  std::span<float> gradients, const GradientReady& ready,
                                  const WeightsNeeded& needed) {
  DeviceStep& step = *device_step();
  const Copies& copy = copies();
  step.begin(weights);
  step.stage(samples);
  std::vector<size_t> order;
  step.run(
      copy.gradients.data(), [&](size_t tensor) { order.push_back(tensor); }, needed);
  const float loss = step.wait().back();
  const ops::Backend::Scope scope(graph_->backend());
  graph_->backend().read(copy.gradients.data(), gradients.size_bytes(), gradients.data());
  for (const size_t tensor : order) ready(tensor);
  return loss;
}

void GraphModel::evaluate(std::span<const float> weights, const Samples& samples,
                          std::span<HeadSums> sums) {
  PP_ASSERT(sums.size() == heads_.size());
  PP_ASSERT(weights.size() == static_cast<size_t>(table_.total));
  const int64_t valid = std::ssize(samples.indices);
  check_samples(graph_->graph(), graph_->layout(), samples, valid);
  const float* losses = graph_->losses();
  const int32_t* predictions = graph_->predictions();
  if (graph_->backend().device() != nullptr) {
    evaluate_on_device(weights, samples);
    losses = losses_.data();
    predictions = predictions_.data();
  } else {
    graph_->evaluate(weights, samples.block.data(), valid);
  }
  const size_t words = graph_->result_words();
  batch_sums(graph_->graph(), graph_->layout(), samples, {losses, words}, {predictions, words},
             sums);
}

void GraphModel::evaluate_on_device(std::span<const float> weights, const Samples& samples) {
  const Copies& copy = copies();
  ops::Backend& backend = graph_->backend();
  const ops::Backend::Scope scope(backend);
  const size_t words = graph_->result_words();
  backend.write(weights.data(), weights.size_bytes(), copy.weights.data());
  backend.write(samples.block.data(), samples.block.size_bytes(), copy.block.data());
  graph_->evaluate({copy.weights.data(), weights.size()}, copy.block.data(),
                   std::ssize(samples.indices));
  losses_.resize(words);
  predictions_.resize(words);
  backend.read(graph_->losses(), words * sizeof(float), losses_.data());
  backend.read(graph_->predictions(), words * sizeof(int32_t), predictions_.data());
}

GraphModel::Copies& GraphModel::copies() {
  if (copies_.weights.size() > 0) return copies_;
  ops::Backend& backend = graph_->backend();
  const ops::Backend::Scope scope(backend);
  const auto total = static_cast<size_t>(table_.total);
  copies_.weights = backend.allocate(total);
  copies_.gradients = backend.allocate(total);
  copies_.block = backend.allocate(graph_->layout().words());
  return copies_;
}

DeviceStep* GraphModel::device_step() {
  if (graph_->backend().device() == nullptr) return nullptr;
  if (!step_) step_ = make_device_step(*graph_, seed_);
  return step_.get();
}

std::string GraphModel::numerics() const {
  const ops::Backend::Scope scope(graph_->backend());
  return graph_->backend().numerics();
}

std::string GraphModel::choices() const { return graph_->backend().choices(); }

void GraphModel::choose(const std::string& choices) {
  if (choices.empty() || choices == this->choices()) return;
  step_.reset();
  graph_->choose(choices);
}

}  // namespace pushpull
