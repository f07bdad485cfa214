// Linear on oneDNN's matmul, which reads w and writes dw in place in PyTorch's layout. For these
// sizes it beats inner_product, which has blocked weights and pays for a reorder per step
// (bench/ops_bench).
#include "models/ops/linear.h"

#include <algorithm>

#include "common/base/simd.h"
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

// Describes the weight as a factor [K, M].
dnnl::memory::desc weight(const LinearShape& shape) {
  return matrix(shape.inputs, shape.outputs, !shape.transposed);
}

Primitive make_forward(Shared& shared, const LinearShape& shape) {
  dnnl::primitive_attr attr = attributes();
  if (shape.relu) {
    dnnl::post_ops post;
    post.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
    attr.set_post_ops(post);
  }
  const auto x = matrix(shape.samples, shape.inputs);
  const auto w = weight(shape);
  const auto b = matrix(1, shape.outputs);
  const auto y = matrix(shape.samples, shape.outputs);
  if (!shape.bias) {
    const dnnl::matmul::primitive_desc plan({x, w, y}, attr, shared.engine);
    return {shared,
            dnnl::matmul(plan),
            plan.scratchpad_desc(),
            {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y}}};
  }
  const dnnl::matmul::primitive_desc plan({x, w, b, y}, attr, shared.engine);
  return {shared,
          dnnl::matmul(plan),
          plan.scratchpad_desc(),
          {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_BIAS, b}, {DNNL_ARG_DST, y}}};
}

// dw = dyᵀ x [M, K], or xᵀ dy [K, M] if `transposed`.
Primitive make_backward_weights(Shared& shared, const LinearShape& shape) {
  const auto [n, k, m, relu, bias, transposed] = shape;
  if (transposed) return make_product(shared, matrix(k, n, true), matrix(n, m), matrix(k, m));
  return make_product(shared, matrix(m, n, true), matrix(n, k), matrix(m, k));
}

Primitive make_backward_data(Shared& shared, const LinearShape& shape) {
  const auto [n, k, m, relu, bias, transposed] = shape;
  return make_product(shared, matrix(n, m), matrix(m, k, transposed), matrix(n, k));
}

constexpr int64_t kWorthThreadsOfLinear = 256 << 10;  // elements of y

// Derivative of ReLU, 0 at 0 as in PyTorch. A multiplication would propagate the NaN of 0 * inf.
PUSHPULL_SIMD void mask_gradient(const float* y, int64_t count, float* dy) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < count; ++i) dy[i] = y[i] > 0.0F ? dy[i] : 0.0F;
}

// Adds `columns` columns of a matrix, each in the order of the rows.
//   stride: from one row to the next.
PUSHPULL_SIMD void sum_columns(const float* rows, int64_t count, int64_t stride, int64_t columns,
                               float* sums) {
  for (int64_t j = 0; j < columns; ++j) sums[j] = rows[j];
  for (int64_t n = 1; n < count; ++n) {
    const float* row = rows + n * stride;
    PUSHPULL_ELEMENTWISE
    for (int64_t j = 0; j < columns; ++j) sums[j] += row[j];
  }
}

class CpuLinear final : public Operation {
 public:
  CpuLinear(Shared& shared, const LinearShape& shape)
      : shape_(shape),
        forward_(make_forward(shared, shape)),
        backward_weights_(make_backward_weights(shared, shape)),
        backward_data_(make_backward_data(shared, shape)) {}

  Needs needs() const override { return {.inputs = 1, .output = shape_.relu, .splits = true}; }

  void forward(const Run& run) override {
    forward_.bind(DNNL_ARG_SRC, run.x[0].floats());
    forward_.bind(DNNL_ARG_WEIGHTS, run.w[0]);
    if (shape_.bias) forward_.bind(DNNL_ARG_BIAS, run.w[1]);
    forward_.bind(DNNL_ARG_DST, run.y.floats());
    forward_.run();
  }

  void backward_weights(const Run& run) override {
    if (shape_.relu) mask(run.y.floats(), run.dy.floats());
    if (shape_.bias) sum_rows(run.dy.floats(), run.dw[1]);
    const float* x = run.x[0].floats();
    const float* dy = run.dy.floats();
    backward_weights_.bind(DNNL_ARG_SRC, shape_.transposed ? x : dy);
    backward_weights_.bind(DNNL_ARG_WEIGHTS, shape_.transposed ? dy : x);
    backward_weights_.bind(DNNL_ARG_DST, run.dw[0]);
    backward_weights_.run();
  }

  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    backward_data_.bind(DNNL_ARG_SRC, static_cast<const float*>(run.dy.data));
    backward_data_.bind(DNNL_ARG_WEIGHTS, run.w[0]);
    backward_data_.bind(DNNL_ARG_DST, run.dx[0].floats());
    backward_data_.run();
  }

 private:
  bool is_worth_threads() const { return shape_.samples * shape_.outputs >= kWorthThreadsOfLinear; }

  void mask(const float* y, float* dy) const {
    constexpr int64_t kPart = 16 << 10;
    const int64_t count = shape_.samples * shape_.outputs;
#pragma omp parallel for schedule(static) if (is_worth_threads())
    for (int64_t first = 0; first < count; first += kPart) {
      mask_gradient(y + first, std::min(kPart, count - first), dy + first);
    }
  }

  void sum_rows(const float* dy, float* db) const {
    constexpr int64_t kPart = 512;  // columns: their sums stay in the first cache
    const int64_t m = shape_.outputs;
#pragma omp parallel for schedule(static) if (is_worth_threads())
    for (int64_t j = 0; j < m; j += kPart) {
      sum_columns(dy + j, shape_.samples, m, std::min(kPart, m - j), db + j);
    }
  }

  const LinearShape shape_;
  Primitive forward_;
  Primitive backward_weights_;
  Primitive backward_data_;
};

// The operation behind the interface of ops.h.
class OldLinear final : public Linear {
 public:
  OldLinear(Shared& shared, const LinearShape& shape) : operation_(shared, shape) {}

  void forward(const Activation* x, const float* w, const float* b, Activation* y) override {
    Run run;
    run.x[0].data = x;
    run.w = {w, b};
    run.y.data = y;
    operation_.forward(run);
  }
  void backward_weights(const Activation* x, const Activation* y, Activation* dy, float* dw,
                        float* db) override {
    Run run;
    run.x[0].data = x;
    run.dy.data = dy;
    run.dw = {dw, db};
    run.y.data = const_cast<Activation*>(y);  // NOLINT(cppcoreguidelines-pro-type-const-cast): read
    operation_.backward_weights(run);
  }
  void backward_data(const Activation* dy, const float* w, Activation* dx) override {
    Run run;
    run.w[0] = w;
    run.dx[0].data = dx;
    run.dy.data =
        const_cast<Activation*>(dy);  // NOLINT(cppcoreguidelines-pro-type-const-cast): read
    operation_.backward_data(run);
  }

 private:
  CpuLinear operation_;
};

}  // namespace

std::unique_ptr<Operation> make_linear(Shared& shared, const Spec& spec) {
  return std::make_unique<CpuLinear>(shared, spec_as<LinearSpec>(spec).shape());
}

std::unique_ptr<Linear> make_linear(Shared& shared, const LinearShape& shape) {
  return std::make_unique<OldLinear>(shared, shape);
}

}  // namespace pushpull::ops::cpu
