#include "models/network.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"

namespace pushpull {

void LayerRow::append(std::unique_ptr<Layer> layer) {
  layers.push_back(std::move(layer));
  tensors_end.push_back(table.tensors.size());
}

Network::Network(std::unique_ptr<ops::Backend> backend, const NetworkShape& shape,
                 LayerBuilder build)
    : backend_(std::move(backend)),
      shape_(shape),
      layout_(shape_.fields, shape_.samples),
      build_(std::move(build)) {
  plan();
}

void Network::plan() {
  LayerRow row{*backend_, table_, {}, {}};
  build_(row);
  layers_ = std::move(row.layers);
  tensors_end_ = std::move(row.tensors_end);
  input_ = ops::make_elements(*backend_, static_cast<int64_t>(layout_.size(shape_.pixels)));
  cross_entropy_ = ops::make_cross_entropy(*backend_, {shape_.samples, classes()});

  const ops::Backend::Scope scope(*backend_);
  size_t largest = 0;
  for (const auto& layer : layers_) {
    outputs_.push_back(backend_->allocate(layer->output_floats()));
    largest = std::max(largest, layer->output_floats());
  }
  gradient_ = backend_->allocate(largest);
  next_gradient_ = backend_->allocate(largest);
  static_assert(sizeof(int32_t) == sizeof(float));
  losses_ = backend_->allocate(static_cast<size_t>(shape_.samples));
  predictions_ = backend_->allocate(static_cast<size_t>(shape_.samples));
}

void Network::choose(const std::string& choices) {
  cross_entropy_.reset();
  input_.reset();
  outputs_.clear();
  layers_.clear();
  table_ = {};
  backend_->choose(choices);
  plan();
}

const int32_t* Network::predictions() const {
  return reinterpret_cast<const int32_t*>(predictions_.data());
}

const int32_t* Network::labels(const float* block) const {
  return as_ints(block + layout_.offset(shape_.label));
}

void Network::check(const Samples& samples, int64_t valid) const {
  PP_ASSERT(samples.block.size() == layout_.words());
  PP_ASSERT(valid >= 0 && valid <= shape_.samples);
  ops::check_labels({shape_.samples, classes()},
                    {labels(samples.block.data()), static_cast<size_t>(valid)});
}

void Network::train(const Batch& batch, const Hooks& hooks) {
  PP_ASSERT(batch.weights.size() == static_cast<size_t>(table_.total));
  PP_ASSERT(batch.gradients.size() == batch.weights.size());
  const ops::Backend::Scope scope(*backend_);
  const TrainPass pass{batch.weights, batch.gradients, hooks.ready};

  const ops::Activation* images = input_->in(this->images(batch.block));
  const int32_t* labels = this->labels(batch.block);
  const ops::Activation* x = images;
  size_t tensor = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (; hooks.needed && tensor < tensors_end_[i]; ++tensor) hooks.needed(tensor);
    layers_[i]->forward(pass, x, outputs_[i].data());
    x = outputs_[i].data();
  }
  cross_entropy_->forward(x, labels, shape_.samples, losses_.data());
  if (hooks.forward_done) hooks.forward_done();

  float* dy = gradient_.data();
  float* dx = next_gradient_.data();
  cross_entropy_->backward(labels, dy);
  for (size_t i = layers_.size(); i-- > 0;) {
    const bool first = i == 0;
    layers_[i]->backward(pass, first ? images : outputs_[i - 1].data(), outputs_[i].data(), dy,
                         first ? nullptr : dx);
    std::swap(dy, dx);
  }
}

void Network::evaluate(std::span<const float> weights, const float* block, int64_t valid) {
  PP_ASSERT(weights.size() == static_cast<size_t>(table_.total));
  const ops::Backend::Scope scope(*backend_);
  const ops::Activation* x = input_->in(images(block));
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->evaluate(weights, x, outputs_[i].data());
    x = outputs_[i].data();
  }
  cross_entropy_->forward(x, labels(block), valid, losses_.data());
  cross_entropy_->predict(x, valid, reinterpret_cast<int32_t*>(predictions_.data()));
}

float mean_loss(std::span<const float> losses) {
  double sum = 0.0;
  for (const float loss : losses) sum += static_cast<double>(loss);
  return static_cast<float>(sum / static_cast<double>(losses.size()));
}

}  // namespace pushpull
