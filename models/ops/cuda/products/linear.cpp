// A linear layer of a graph. It keeps nothing from forward to backward.
#include "models/ops/linear.h"

#include "models/ops/cuda/operations.h"
#include "models/ops/cuda/products/makers.h"

namespace pushpull::ops::cuda {

namespace {

class LinearOperation final : public Operation {
 public:
  LinearOperation(Shared& shared, const LinearShape& shape)
      : relu_(shape.relu), layer_(make_linear(shared, shape)) {}

  Needs needs() const override { return {.inputs = 1, .output = relu_, .splits = true}; }
  void forward(const Run& run) override {
    layer_->forward(run.x[0].data, run.w[0], run.w[1], run.y.data);
  }
  void backward_weights(const Run& run) override {
    layer_->backward_weights(run.x[0].data, run.y.data, run.dy.data, run.dw[0], run.dw[1]);
  }
  void backward_data(const Run& run) override {
    if (run.dx[0].data != nullptr) layer_->backward_data(run.dy.data, run.w[0], run.dx[0].data);
  }

 private:
  bool relu_;
  std::unique_ptr<Linear> layer_;
};

}  // namespace

std::unique_ptr<Operation> make_linear(Shared& shared, const Spec& spec) {
  return std::make_unique<LinearOperation>(shared, spec_as<LinearSpec>(spec).shape());
}

}  // namespace pushpull::ops::cuda
