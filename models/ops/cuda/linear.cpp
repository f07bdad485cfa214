// Linear on cuBLASLt: bias and ReLU in the product's epilogue, and one pass of our own over dy.
#include "models/ops/linear.h"

#include "models/ops/cuda/makers.h"
#include "models/ops/cuda/matmul.h"
#include "models/ops/cuda/passes.h"

namespace pushpull::ops::cuda {

namespace {

LayerProducts products(const LinearShape& shape) {
  return layer_products(shape.samples, shape.inputs, shape.outputs, shape.transposed);
}

// Without a bias a ReLU uses the epilogue with a bias of zeros.
Epilogue epilogue_of(const LinearShape& shape) {
  if (shape.relu) return Epilogue::kBiasRelu;
  return shape.bias ? Epilogue::kBias : Epilogue::kNone;
}

class CudaLinear final : public Operation {
 public:
  CudaLinear(Shared& shared, const LinearShape& shape)
      : shared_(shared),
        shape_(shape),
        type_(activation_type(shared.precision)),
        weights_(shared, shape.outputs * shape.inputs),
        forward_(shared, {products(shape).forward, type_, type_, epilogue_of(shape)}),
        backward_weights_(shared, {products(shape).weights, type_, CUDA_R_32F, Epilogue::kNone}),
        backward_data_(shared, {products(shape).data, type_, type_, Epilogue::kNone}) {
    plan_mask_and_sum_rows(shared, shape);
    if (shape.relu && !shape.bias) unused_ = shared.buffer(static_cast<size_t>(shape.outputs));
  }

  Needs needs() const override { return {.inputs = 1, .output = shape_.relu, .splits = true}; }

  void forward(const Run& run) override {
    if (shape_.bias) cast_weights(shared_, run.w[1], shape_.outputs, forward_.bias());
    forward_.run(run.x[0].data, weights_.of_forward(run.w[0]), run.y.data);
  }

  void backward_weights(const Run& run) override {
    if (shape_.bias || shape_.relu) {
      mask_and_sum_rows(shared_, shape_, run.y.data, run.dy.data,
                        shape_.bias ? run.dw[1] : unused_.data());
    }
    const Activation* x = run.x[0].data;
    const Activation* dy = run.dy.data;
    backward_weights_.run(shape_.transposed ? x : dy, shape_.transposed ? dy : x, run.dw[0],
                          1.0F / shared_.loss_scale);
  }

  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    backward_data_.run(run.dy.data, weights_.of_backward(run.w[0]), run.dx[0].data);
  }

 private:
  Shared& shared_;
  const LinearShape shape_;
  const cudaDataType_t type_;
  Weights weights_;
  Matmul forward_;
  Matmul backward_weights_;
  Matmul backward_data_;
  Buffer unused_;  // the sums of a mask without a bias
};

}  // namespace

std::unique_ptr<Operation> make_linear(Shared& shared, const Spec& spec) {
  return std::make_unique<CudaLinear>(shared, spec_as<LinearSpec>(spec).shape());
}

}  // namespace pushpull::ops::cuda
