#include "models/sequential.h"

#include <algorithm>
#include <utility>

#include "common/error.h"

namespace pushpull {

Sequential::Sequential(std::unique_ptr<ops::Backend> backend, int64_t samples, int64_t classes)
    : backend_(std::move(backend)), samples_(samples), classes_(classes) {}

void Sequential::append(std::unique_ptr<Layer> layer) {
  layers_.push_back(std::move(layer));
  tensors_end_.push_back(table_.tensors.size());
}

void Sequential::finish() {
  cross_entropy_ = ops::make_cross_entropy(*backend_, {samples_, classes_});
  size_t largest = 0;
  for (const auto& layer : layers_) {
    outputs_.push_back(backend_->allocate(layer->output_floats()));
    largest = std::max(largest, layer->output_floats());
  }
  gradient_ = backend_->allocate(largest);
  next_gradient_ = backend_->allocate(largest);
  losses_.resize(static_cast<size_t>(samples_));
  predictions_.resize(static_cast<size_t>(samples_));
}

float Sequential::train(std::span<const float> weights, const float* images, const int32_t* labels,
                        std::span<float> gradients, const GradientReady& ready,
                        const WeightsNeeded& needed) {
  PP_ASSERT(weights.size() == static_cast<size_t>(table_.total));
  PP_ASSERT(gradients.size() == weights.size());
  ops::check_labels({samples_, classes_}, {labels, static_cast<size_t>(samples_)});
  const ops::Backend::Scope scope(*backend_);
  const TrainPass pass{weights, gradients, ready};

  const ops::Activation* x = images;
  size_t tensor = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (; needed && tensor < tensors_end_[i]; ++tensor) needed(tensor);
    layers_[i]->forward(pass, x, outputs_[i].data());
    x = outputs_[i].data();
  }
  cross_entropy_->forward(x, labels, samples_, losses_.data());

  float* dy = gradient_.data();
  float* dx = next_gradient_.data();
  cross_entropy_->backward(labels, dy);
  for (size_t i = layers_.size(); i-- > 0;) {
    const bool first = i == 0;
    layers_[i]->backward(pass, first ? images : outputs_[i - 1].data(), outputs_[i].data(), dy,
                         first ? nullptr : dx);
    std::swap(dy, dx);
  }
  return mean_loss();
}

EvalSums Sequential::evaluate(std::span<const float> weights, const float* images,
                              const int32_t* labels, int64_t valid) {
  PP_ASSERT(weights.size() == static_cast<size_t>(table_.total));
  ops::check_labels({samples_, classes_}, {labels, static_cast<size_t>(valid)});
  const ops::Backend::Scope scope(*backend_);
  const ops::Activation* x = images;
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->evaluate(weights, x, outputs_[i].data());
    x = outputs_[i].data();
  }
  cross_entropy_->forward(x, labels, valid, losses_.data());
  cross_entropy_->predict(x, valid, predictions_.data());
  EvalSums sums;
  for (int64_t n = 0; n < valid; ++n) {
    const auto i = static_cast<size_t>(n);
    sums.loss += static_cast<double>(losses_[i]);
    sums.correct += predictions_[i] == labels[i] ? 1 : 0;
  }
  return sums;
}

float Sequential::mean_loss() const {
  double sum = 0.0;
  for (const float loss : losses_) sum += static_cast<double>(loss);
  return static_cast<float>(sum / static_cast<double>(samples_));
}

}  // namespace pushpull
