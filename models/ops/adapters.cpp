#include "models/ops/adapters.h"

#include <string_view>
#include <utility>

#include "common/base/error.h"
#include "models/ops/batch_norm.h"
#include "models/ops/convolution.h"
#include "models/ops/cross_entropy.h"
#include "models/ops/elements.h"
#include "models/ops/flatten.h"
#include "models/ops/linear.h"
#include "models/ops/max_pool.h"

namespace pushpull::ops {

namespace {

template <class Old>
class Adapter : public Operation {
 public:
  explicit Adapter(std::unique_ptr<Old> old) : old_(std::move(old)) {}

 protected:
  std::unique_ptr<Old> old_;
};

class LinearAdapter final : public Adapter<Linear> {
 public:
  LinearAdapter(std::unique_ptr<Linear> old, bool relu) : Adapter(std::move(old)), relu_(relu) {}
  Needs needs() const override { return {.inputs = 1, .output = relu_, .splits = true}; }
  void forward(const Run& run) override {
    old_->forward(run.x[0].data, run.w[0], run.w[1], run.y.data);
  }
  void backward_weights(const Run& run) override {
    old_->backward_weights(run.x[0].data, run.y.data, run.dy.data, run.dw[0], run.dw[1]);
  }
  void backward_data(const Run& run) override {
    if (run.dx[0].data != nullptr) old_->backward_data(run.dy.data, run.w[0], run.dx[0].data);
  }

 private:
  bool relu_;
};

class ConvolutionAdapter final : public Adapter<Convolution> {
 public:
  using Adapter::Adapter;
  Needs needs() const override { return {.inputs = 1, .splits = true}; }
  void forward(const Run& run) override {
    old_->forward(run.x[0].data, run.w[0], run.w[1], run.y.data);
  }
  void backward_weights(const Run& run) override {
    old_->backward_weights(run.x[0].data, run.dy.data, run.dw[0], run.dw[1]);
  }
  void backward_data(const Run& run) override {
    if (run.dx[0].data != nullptr) old_->backward_data(run.dy.data, run.w[0], run.dx[0].data);
  }
};

class BatchNormAdapter final : public Adapter<BatchNorm> {
 public:
  using Adapter::Adapter;
  Needs needs() const override { return {.inputs = 1}; }
  void forward(const Run& run) override {
    if (run.training) {
      old_->forward(run.x[0].data, run.w[0], run.w[1], run.dw[2], run.dw[3], run.y.data);
    } else {
      old_->infer(run.x[0].data, run.w[0], run.w[1], run.w[2], run.w[3], run.y.data);
    }
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    PP_ASSERT(run.dx[0].data != nullptr);
    old_->backward(run.x[0].data, run.dy.data, run.w[0], run.w[1], run.dx[0].data, run.dw[0],
                   run.dw[1]);
  }
};

class MaxPoolAdapter final : public Adapter<MaxPool> {
 public:
  using Adapter::Adapter;
  Needs needs() const override { return {}; }
  void forward(const Run& run) override { old_->forward(run.x[0].data, run.y.data); }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override { old_->backward(run.dy.data, run.dx[0].data); }
};

class FlattenAdapter final : public Adapter<Relayout> {
 public:
  using Adapter::Adapter;
  Needs needs() const override { return {}; }
  void forward(const Run& run) override { old_->to_plain(run.x[0].data, run.y.data); }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override { old_->to_native(run.dy.data, run.dx[0].data); }
};

class ElementsAdapter final : public Adapter<Elements> {
 public:
  using Adapter::Adapter;
  Needs needs() const override { return {.is_view = true}; }
  void forward(const Run& /*run*/) override {}
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& /*run*/) override {}
  const void* view(const Run& run) override { return old_->in(run.x[0].floats()); }
};

class CrossEntropyAdapter final : public Adapter<CrossEntropy> {
 public:
  using Adapter::Adapter;
  Needs needs() const override { return {}; }
  void forward(const Run& run) override {
    old_->forward(run.x[0].data, run.x[1].ints(), run.valid, run.y.floats());
    if (run.predictions.data == nullptr) return;
    old_->predict(run.x[0].data, run.valid, run.predictions.ints());
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override { old_->backward(run.x[1].ints(), run.dx[0].data); }
};

std::unique_ptr<Operation> plan_cross_entropy(Backend& backend, const CrossEntropySpec& spec) {
  const CrossEntropyOptions& options = spec.options();
  if (options.ignored || options.smoothing > 0.0F || !options.class_weights.empty()) {
    return nullptr;
  }
  return std::make_unique<CrossEntropyAdapter>(make_cross_entropy(backend, spec.shape()));
}

}  // namespace

std::unique_ptr<Operation> plan_on_old(Backend& backend, const Spec& spec) {
  const std::string_view name = spec.name();
  if (name == LinearSpec::kName) {
    const LinearShape& shape = spec_as<LinearSpec>(spec).shape();
    return std::make_unique<LinearAdapter>(make_linear(backend, shape), shape.relu);
  }
  if (name == ConvolutionSpec::kName) {
    return std::make_unique<ConvolutionAdapter>(
        make_convolution(backend, spec_as<ConvolutionSpec>(spec).shape()));
  }
  if (name == BatchNormSpec::kName) {
    return std::make_unique<BatchNormAdapter>(
        make_batch_norm(backend, spec_as<BatchNormSpec>(spec).shape()));
  }
  if (name == MaxPoolSpec::kName) {
    return std::make_unique<MaxPoolAdapter>(
        make_max_pool(backend, spec_as<MaxPoolSpec>(spec).shape()));
  }
  if (name == FlattenSpec::kName) {
    return std::make_unique<FlattenAdapter>(
        make_relayout(backend, spec_as<FlattenSpec>(spec).image()));
  }
  if (name == ElementsSpec::kName) {
    return std::make_unique<ElementsAdapter>(
        make_elements(backend, spec_as<ElementsSpec>(spec).shape().size()));
  }
  if (name == CrossEntropySpec::kName) {
    return plan_cross_entropy(backend, spec_as<CrossEntropySpec>(spec));
  }
  return nullptr;
}

}  // namespace pushpull::ops
