// Linear on oneDNN's matmul, which reads w and writes dw in place in PyTorch's layout. For these
// sizes it beats inner_product, which has blocked weights and pays for a reorder per step
// (bench/ops_bench).
#include "models/ops/linear.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "common/base/simd.h"
#include "models/ops/cpu/activations.h"
#include "models/ops/cpu/operations.h"

namespace pushpull::ops::cpu {

namespace {

// Describes a row-major matrix [rows, columns], or one stored as its transpose.
dnnl::memory::desc matrix(Type type, int64_t rows, int64_t columns, bool transposed = false) {
  return transposed ? describe({rows, columns}, dnnl::memory::dims{1, rows}, type)
                    : describe({rows, columns}, dnnl::memory::dims{columns, 1}, type);
}

// A factor of a product: a matrix [rows, columns], stored as such or as its transpose.
struct Matrix {
  int64_t rows;
  int64_t columns;
  bool transposed = false;

  int64_t stride() const { return transposed ? rows : columns; }
  char letter() const { return transposed ? 'T' : 'N'; }
};

// c = a b.
// oneDNN 2.6's matmul takes up to twice the time of its sgemm if b has long rows, mostly with 3072 and
// 5120 floats (bench/peers/onednn_compare.py). For shorter rows they are about equally fast.
//   type: of a and b.
//   out: the type of c.
class Product {
 public:
  Product(Shared& shared, Type type, const Matrix& a, const Matrix& b, Type out) : a_(a), b_(b) {
    constexpr int64_t kLongRow = 2048;
    if (type == Type::f32 && !b.transposed && b.columns > kLongRow) return;
    const auto a_desc = matrix(type, a.rows, a.columns, a.transposed);
    const auto b_desc = matrix(type, b.rows, b.columns, b.transposed);
    const auto c_desc = matrix(out, a.rows, b.columns);
    const dnnl::matmul::primitive_desc plan({a_desc, b_desc, c_desc}, attributes(), shared.engine);
    matmul_.emplace(
        shared, dnnl::matmul(plan), plan.scratchpad_desc(),
        std::vector<Primitive::Argument>{
            {DNNL_ARG_SRC, a_desc}, {DNNL_ARG_WEIGHTS, b_desc}, {DNNL_ARG_DST, c_desc}});
  }

  void run(const void* a, const void* b, void* c) {
    if (!matmul_) {
      require_success(dnnl_sgemm(a_.letter(), b_.letter(), a_.rows, b_.columns, a_.columns, 1.0F,
                                 static_cast<const float*>(a), a_.stride(),
                                 static_cast<const float*>(b), b_.stride(), 0.0F,
                                 static_cast<float*>(c), b_.columns));
      return;
    }
    matmul_->bind(DNNL_ARG_SRC, a);
    matmul_->bind(DNNL_ARG_WEIGHTS, b);
    matmul_->bind(DNNL_ARG_DST, c);
    matmul_->run();
  }

 private:
  Matrix a_;
  Matrix b_;
  std::optional<Primitive> matmul_;  // empty: sgemm
};

// Describes the weight as a factor [K, M].
dnnl::memory::desc weight(Type type, const LinearShape& shape) {
  return matrix(type, shape.inputs, shape.outputs, !shape.transposed);
}

Primitive make_forward(Shared& shared, const LinearShape& shape) {
  dnnl::primitive_attr attr = attributes();
  if (shape.relu) {
    dnnl::post_ops post;
    post.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
    attr.set_post_ops(post);
  }
  const Type type = shared.activation;
  const auto x = matrix(type, shape.samples, shape.inputs);
  const auto w = weight(type, shape);
  const auto b = matrix(Type::f32, 1, shape.outputs);
  const auto y = matrix(type, shape.samples, shape.outputs);
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
Product make_backward_weights(Shared& shared, const LinearShape& shape) {
  const auto [n, k, m, relu, bias, transposed] = shape;
  const Type type = shared.activation;
  if (transposed) return {shared, type, {k, n, true}, {n, m}, Type::f32};
  return {shared, type, {m, n, true}, {n, k}, Type::f32};
}

Product make_backward_data(Shared& shared, const LinearShape& shape) {
  const auto [n, k, m, relu, bias, transposed] = shape;
  const Type type = shared.activation;
  return {shared, type, {n, m}, {m, k, transposed}, type};
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
PUSHPULL_SIMD void add_part(const float* row, int64_t columns, float* sums) {
  PUSHPULL_ELEMENTWISE
  for (int64_t j = 0; j < columns; ++j) sums[j] += row[j];
}
void sum_columns(const Bf16* rows, int64_t count, int64_t stride, int64_t columns, float* sums) {
  widen(rows, columns, sums);
  for (int64_t n = 1; n < count; ++n) {
    const Reads<Bf16> row(rows + n * stride, columns);
    add_part(row.data(), columns, sums);
  }
}

// The weight as a factor of products: the caller's floats, or a copy in bf16 that is made once for
// forward and backward.
template <class T>
class Factor {
 public:
  explicit Factor(int64_t count) : count_(count) {
    if constexpr (kCopies) copy_ = allocate(static_cast<size_t>(count + 1) / 2);
  }
  const void* of_forward(const float* w) {
    if constexpr (!kCopies) return w;
    in_ranges(count_, kGrain, [&](int64_t begin, int64_t end) {
      narrow(w + begin, end - begin, reinterpret_cast<Bf16*>(copy_.data()) + begin);
    });
    copied_ = w;
    return copy_.data();
  }
  // Returns the copy made by the latest forward.
  const void* of_backward(const float* w) {
    return kCopies && copied_ == w ? copy_.data() : of_forward(w);
  }

 private:
  static constexpr bool kCopies = !std::is_same_v<T, float>;

  int64_t count_;
  Buffer copy_;
  const float* copied_ = nullptr;
};

template <class T>
class CpuLinear final : public Operation {
 public:
  CpuLinear(Shared& shared, const LinearShape& shape)
      : shape_(shape),
        weight_(shape.inputs * shape.outputs),
        forward_(make_forward(shared, shape)),
        backward_weights_(make_backward_weights(shared, shape)),
        backward_data_(make_backward_data(shared, shape)) {}

  Needs needs() const override { return {.inputs = 1, .output = shape_.relu, .splits = true}; }

  void forward(const Run& run) override {
    forward_.bind(DNNL_ARG_SRC, run.x[0].data);
    forward_.bind(DNNL_ARG_WEIGHTS, weight_.of_forward(run.w[0]));
    if (shape_.bias) forward_.bind(DNNL_ARG_BIAS, run.w[1]);
    forward_.bind(DNNL_ARG_DST, run.y.data);
    forward_.run();
  }

  void backward_weights(const Run& run) override {
    if (shape_.relu) mask(elements<T>(run.y), elements<T>(run.dy));
    if (shape_.bias) sum_rows(elements<T>(run.dy), run.dw[1]);
    const void* x = run.x[0].data;
    const void* dy = run.dy.data;
    backward_weights_.run(shape_.transposed ? x : dy, shape_.transposed ? dy : x, run.dw[0]);
  }

  // Each element of dw is a sum of N products, and of db a sum of N elements.
  GradientBounds bounds(const Run& run) const override {
    const auto [n, k, m, relu, bias, transposed] = shape_;
    GradientBounds bounds = no_bounds();
    if (2 * n * (k + m) > k * m) return bounds;
    bounds[1] = static_cast<double>(n) * largest_absolute(elements<T>(run.dy), n * m);
    bounds[0] = bounds[1] * largest_absolute(elements<T>(run.x[0]), n * k);
    return bounds;
  }

  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    backward_data_.run(run.dy.data, weight_.of_backward(run.w[0]), run.dx[0].data);
  }

 private:
  bool is_worth_threads() const { return shape_.samples * shape_.outputs >= kWorthThreadsOfLinear; }

  void mask(const T* y, T* dy) const {
    constexpr int64_t kPart = std::is_same_v<T, float> ? 16 << 10 : kPiece;
    const int64_t count = shape_.samples * shape_.outputs;
#pragma omp parallel for schedule(static) if (is_worth_threads())
    for (int64_t first = 0; first < count; first += kPart) {
      const int64_t n = std::min(kPart, count - first);
      const Reads<T> y_part(y + first, n);
      const Changes<T> dy_part(dy + first, n);
      mask_gradient(y_part.data(), n, dy_part.data());
    }
  }

  void sum_rows(const T* dy, float* db) const {
    constexpr int64_t kPart = 512;  // columns: their sums stay in the first cache
    const int64_t m = shape_.outputs;
#pragma omp parallel for schedule(static) if (is_worth_threads())
    for (int64_t j = 0; j < m; j += kPart) {
      sum_columns(dy + j, shape_.samples, m, std::min(kPart, m - j), db + j);
    }
  }

  const LinearShape shape_;
  Factor<T> weight_;
  Primitive forward_;
  Product backward_weights_;
  Product backward_data_;
};

}  // namespace

std::unique_ptr<Operation> make_linear(Shared& shared, const Spec& spec) {
  return by_element(shared.activation, [&]<class T>(T) -> std::unique_ptr<Operation> {
    return std::make_unique<CpuLinear<T>>(shared, spec_as<LinearSpec>(spec).shape());
  });
}

}  // namespace pushpull::ops::cpu
