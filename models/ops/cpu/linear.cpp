// Linear on oneDNN's matmul, which reads w and writes dw in place in PyTorch's layout. For these
// sizes it beats inner_product, which has blocked weights and pays for a reorder per step
// (bench/ops_bench).
#include "common/base/error.h"
#include "models/ops/cpu/operations.h"

namespace pushpull::ops::cpu {

namespace {

// Describes a row-major matrix [rows, columns], or one stored as its transpose.
dnnl::memory::desc matrix(int64_t rows, int64_t columns, bool transposed = false) {
  return transposed ? describe({rows, columns}, dnnl::memory::dims{1, rows})
                    : describe({rows, columns}, dnnl::memory::dims{columns, 1});
}

Primitive make_product(Shared& shared, const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                       const dnnl::memory::desc& c) {
  const dnnl::matmul::primitive_desc plan({a, b, c}, attributes(), shared.engine);
  return {shared,
          dnnl::matmul(plan),
          plan.scratchpad_desc(),
          {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}}};
}

Primitive make_forward(Shared& shared, const LinearShape& shape) {
  const auto [n, k, m, relu, bias, transposed] = shape;
  PP_ASSERT(bias && !transposed);
  dnnl::primitive_attr attr = attributes();
  if (relu) {
    dnnl::post_ops post;
    post.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
    attr.set_post_ops(post);
  }
  const auto x = matrix(n, k);
  const auto w = matrix(k, m, true);
  const auto b = matrix(1, m);
  const auto y = matrix(n, m);
  const dnnl::matmul::primitive_desc plan({x, w, b, y}, attr, shared.engine);
  return {shared,
          dnnl::matmul(plan),
          plan.scratchpad_desc(),
          {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_BIAS, b}, {DNNL_ARG_DST, y}}};
}

class CpuLinear final : public Linear {
 public:
  CpuLinear(Shared& shared, const LinearShape& shape)
      : shape_(shape),
        forward_(make_forward(shared, shape)),
        backward_weights_(make_product(shared, matrix(shape.outputs, shape.samples, true),
                                       matrix(shape.samples, shape.inputs),
                                       matrix(shape.outputs, shape.inputs))),
        backward_data_(make_product(shared, matrix(shape.samples, shape.outputs),
                                    matrix(shape.outputs, shape.inputs),
                                    matrix(shape.samples, shape.inputs))) {}

  void forward(const Activation* x, const float* w, const float* b, Activation* y) override {
    forward_.bind(DNNL_ARG_SRC, floats(x));
    forward_.bind(DNNL_ARG_WEIGHTS, w);
    forward_.bind(DNNL_ARG_BIAS, b);
    forward_.bind(DNNL_ARG_DST, floats(y));
    forward_.run();
  }

  void backward_weights(const Activation* x, const Activation* y, Activation* dy, float* dw,
                        float* db) override {
    if (shape_.relu) mask(floats(y), floats(dy));
    sum_rows(floats(dy), db);
    backward_weights_.bind(DNNL_ARG_SRC, floats(dy));
    backward_weights_.bind(DNNL_ARG_WEIGHTS, floats(x));
    backward_weights_.bind(DNNL_ARG_DST, dw);
    backward_weights_.run();
  }

  void backward_data(const Activation* dy, const float* w, Activation* dx) override {
    backward_data_.bind(DNNL_ARG_SRC, floats(dy));
    backward_data_.bind(DNNL_ARG_WEIGHTS, w);
    backward_data_.bind(DNNL_ARG_DST, floats(dx));
    backward_data_.run();
  }

 private:
  // Derivative of ReLU, 0 at 0 as in PyTorch. A multiplication would propagate the NaN of 0 * inf.
  void mask(const float* y, float* dy) const {
    const int64_t count = shape_.samples * shape_.outputs;
    for (int64_t i = 0; i < count; ++i) dy[i] = y[i] > 0.0F ? dy[i] : 0.0F;
  }

  // Adds each column in sample order: the vectorised loop runs along columns, so no sum is
  // regrouped.
  void sum_rows(const float* dy, float* db) const {
    const int64_t m = shape_.outputs;
    for (int64_t j = 0; j < m; ++j) db[j] = dy[j];
    for (int64_t n = 1; n < shape_.samples; ++n) {
      const float* row = dy + n * m;
      for (int64_t j = 0; j < m; ++j) db[j] += row[j];
    }
  }

  const LinearShape shape_;
  Primitive forward_;
  Primitive backward_weights_;
  Primitive backward_data_;
};

}  // namespace

std::unique_ptr<Linear> make_linear(Shared& shared, const LinearShape& shape) {
  return std::make_unique<CpuLinear>(shared, shape);
}

}  // namespace pushpull::ops::cpu
