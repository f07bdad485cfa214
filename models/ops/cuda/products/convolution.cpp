// A convolution of a graph. It keeps nothing from forward to backward.
#include "models/ops/convolution.h"

#include "models/ops/cuda/operations.h"
#include "models/ops/cuda/products/makers.h"

namespace pushpull::ops::cuda {

namespace {

class ConvolutionOperation final : public Operation {
 public:
  ConvolutionOperation(Shared& shared, const ConvolutionShape& shape)
      : layer_(make_convolution(shared, shape)) {}

  Needs needs() const override { return {.inputs = 1, .splits = true}; }
  void forward(const Run& run) override {
    layer_->forward(run.x[0].data, run.w[0], run.w[1], run.y.data);
  }
  void backward_weights(const Run& run) override {
    layer_->backward_weights(run.x[0].data, run.dy.data, run.dw[0], run.dw[1]);
  }
  void backward_data(const Run& run) override {
    if (run.dx[0].data != nullptr) layer_->backward_data(run.dy.data, run.w[0], run.dx[0].data);
  }

 private:
  std::unique_ptr<Convolution> layer_;
};

}  // namespace

std::unique_ptr<Operation> make_convolution(Shared& shared, const Spec& spec) {
  return std::make_unique<ConvolutionOperation>(shared, spec_as<ConvolutionSpec>(spec).shape());
}

}  // namespace pushpull::ops::cuda
