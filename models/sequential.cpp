#include "models/sequential.h"

#include <utility>

#include "common/base/error.h"

namespace pushpull {

Sequential::Sequential(std::unique_ptr<Network> network) : network_(std::move(network)) {
  table_ = network_->table();
  heads_ = {{"label", Metric::kAccuracy, 1}};
}

float Sequential::train(std::span<const float> weights, const Samples& samples,
                        std::span<float> gradients, const GradientReady& ready,
                        const WeightsNeeded& needed) {
  PP_ASSERT(weights.size() == static_cast<size_t>(table_.total));
  PP_ASSERT(gradients.size() == weights.size());
  if (network_->backend().device() != nullptr) {
    return train_on_device(weights, samples, gradients, ready, needed);
  }
  network_->check(samples, network_->shape().samples);
  network_->train({weights, samples.block.data(), gradients}, {ready, needed, {}});
  return mean_loss({network_->losses(), static_cast<size_t>(network_->shape().samples)});
}

float Sequential::train_on_device(std::span<const float> weights, const Samples& samples,
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
  const ops::Backend::Scope scope(network_->backend());
  network_->backend().read(copy.gradients.data(), gradients.size_bytes(), gradients.data());
  for (const size_t tensor : order) ready(tensor);
  return loss;
}

void Sequential::evaluate(std::span<const float> weights, const Samples& samples,
                          std::span<HeadSums> sums) {
  PP_ASSERT(sums.size() == heads_.size());
  PP_ASSERT(weights.size() == static_cast<size_t>(table_.total));
  const int64_t valid = std::ssize(samples.indices);
  network_->check(samples, valid);
  const int32_t* labels = network_->labels(samples.block.data());
  const float* losses = network_->losses();
  const int32_t* predictions = network_->predictions();
  if (network_->backend().device() != nullptr) {
    evaluate_on_device(weights, samples);
    losses = losses_.data();
    predictions = predictions_.data();
  } else {
    network_->evaluate(weights, samples.block.data(), valid);
  }
  HeadSums& label = sums.front();
  label = {.loss = 0.0, .counted = valid, .metric = 0.0};
  for (int64_t n = 0; n < valid; ++n) {
    label.loss += static_cast<double>(losses[n]);
    label.metric += predictions[n] == labels[n] ? 1.0 : 0.0;
  }
}

void Sequential::evaluate_on_device(std::span<const float> weights, const Samples& samples) {
  const Copies& copy = copies();
  ops::Backend& backend = network_->backend();
  const ops::Backend::Scope scope(backend);
  const auto count = static_cast<size_t>(network_->shape().samples);
  backend.write(weights.data(), weights.size_bytes(), copy.weights.data());
  backend.write(samples.block.data(), samples.block.size_bytes(), copy.block.data());
  network_->evaluate({copy.weights.data(), weights.size()}, copy.block.data(),
                     std::ssize(samples.indices));
  losses_.resize(count);
  predictions_.resize(count);
  backend.read(network_->losses(), count * sizeof(float), losses_.data());
  backend.read(network_->predictions(), count * sizeof(int32_t), predictions_.data());
}

Sequential::Copies& Sequential::copies() {
  if (copies_.weights.size() > 0) return copies_;
  ops::Backend& backend = network_->backend();
  const ops::Backend::Scope scope(backend);
  const auto total = static_cast<size_t>(table_.total);
  copies_.weights = backend.allocate(total);
  copies_.gradients = backend.allocate(total);
  copies_.block = backend.allocate(network_->layout().words());
  return copies_;
}

DeviceStep* Sequential::device_step() {
  if (network_->backend().device() == nullptr) return nullptr;
  if (!step_) step_ = make_device_step(*network_);
  return step_.get();
}

std::string Sequential::numerics() const {
  const ops::Backend::Scope scope(network_->backend());
  return network_->backend().numerics();
}

std::string Sequential::choices() const { return network_->backend().choices(); }

void Sequential::choose(const std::string& choices) {
  if (choices.empty() || choices == this->choices()) return;
  step_.reset();
  network_->choose(choices);
}

}  // namespace pushpull
