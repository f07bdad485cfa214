// The losses of heads.

#include "models/ops/losses.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/error.h"
#include "common/base/simd.h"
#include "models/ops/arithmetic.h"
#include "models/ops/cpu/operations.h"
#include "models/ops/cpu/softmax_row.h"

namespace pushpull::ops::cpu {

// Cross-entropy as plain loops: oneDNN's log-softmax is off by a millionth (its exp(0) is not 1),
// which shows as a negative loss. Up to 256 classes the exponential is std::exp, one at a time, and
// depends on the C library, so numerics_fingerprint() names it; wider rows (vocabularies) use
// fast_exp. What is kept is the largest score and the sum of each row; backward computes the
// exponentials again.

namespace {

constexpr int64_t kMostNarrow = 256;                       // classes
constexpr int64_t kWorthThreadsOfCrossEntropy = 16 << 10;  // exponentials

// Returns the sum of top - x[m] in f64, in rising order of m within each of 16 lanes.
double sum_below(const float* x, int64_t classes, float top) {
  constexpr int64_t kLanes = 16;
  double lanes[kLanes] = {};
  for (int64_t m = 0; m < classes; ++m) {
    lanes[m % kLanes] += static_cast<double>(top) - static_cast<double>(x[m]);
  }
  tree_sum(lanes, kLanes);
  return lanes[0];
}

template <class T>
class CpuCrossEntropy final : public Operation {
 public:
  CpuCrossEntropy(const Shared& shared, const CrossEntropySpec& spec)
      : samples_(spec.shape().samples),
        classes_(spec.shape().classes),
        narrow_(classes_ <= kMostNarrow),
        options_(spec.options()),
        rows_(shared, 2, classes_) {}

  Needs needs() const override {
    const size_t row_bytes = sizeof(double) + sizeof(float);
    return {.inputs = 0b11,
            .kept_bytes = static_cast<size_t>(samples_) * row_bytes,
            .gradient_in_input = true};
  }

  void forward(const Run& run) override {
    PP_ASSERT(run.valid >= 0 && run.valid <= samples_);
    const bool worth = run.valid * classes_ >= kWorthThreadsOfCrossEntropy;
#pragma omp parallel for schedule(static) if (worth)
    for (int64_t n = 0; n < run.valid; ++n) forward_row(run, n);
  }

  void backward_weights(const Run& /*run*/) override {}

  void backward_data(const Run& run) override {
    const bool worth = samples_ * classes_ >= kWorthThreadsOfCrossEntropy;
#pragma omp parallel for schedule(static) if (worth)
    for (int64_t n = 0; n < samples_; ++n) backward_row(run, n);
  }

 private:
  bool is_ignored(int32_t label) const { return options_.ignored && label == *options_.ignored; }
  float weight(int32_t label) const {
    return options_.class_weights.empty() ? 1.0F
                                          : options_.class_weights[static_cast<size_t>(label)];
  }
  double* sums(const Run& run) const { return static_cast<double*>(run.kept); }
  float* tops(const Run& run) const { return reinterpret_cast<float*>(sums(run) + samples_); }

  void forward_row(const Run& run, int64_t n) const {
    const float* x = read(elements<T>(run.x[0]) + n * classes_, classes_, rows_.row(0));
    const int32_t label = run.x[1].ints()[n];
    const float top = narrow_ ? *std::max_element(x, x + classes_) : largest(x, classes_);
    if (run.predictions.data != nullptr) {  // the first of equal ones
      run.predictions.ints()[n] = static_cast<int32_t>(
          narrow_ ? std::max_element(x, x + classes_) - x : first_equal(x, classes_, top));
    }
    float& loss = run.y.floats()[n];
    if (is_ignored(label)) {
      loss = 0.0F;
      return;
    }
    PP_ASSERT(label >= 0 && label < classes_);
    const double sum = sum_of(x, top);  // includes exp(0) = 1: no overflow, no log of 0
    const double distance = static_cast<double>(top) - static_cast<double>(x[label]);
    loss = static_cast<float>(distance + std::log(sum));
    if (!run.training) return;
    sums(run)[n] = sum;
    tops(run)[n] = top;
    if (options_.smoothing > 0.0F) {
      const auto smoothing = static_cast<double>(options_.smoothing);
      const double mean = sum_below(x, classes_, top) / static_cast<double>(classes_);
      loss = static_cast<float>((1.0 - smoothing) * distance + smoothing * mean + std::log(sum));
    }
    loss *= weight(label);
  }

  double sum_of(const float* x, float top) const {
    if (!narrow_) return exp_sum(x, classes_, top);
    double sum = 0.0;
    for (int64_t m = 0; m < classes_; ++m) sum += static_cast<double>(std::exp(x[m] - top));
    return sum;
  }

  void backward_row(const Run& run, int64_t n) const {
    T* to = elements<T>(run.dx[0]) + n * classes_;  // may be x
    const int32_t label = run.x[1].ints()[n];
    if (is_ignored(label)) {
      std::fill_n(to, classes_, T{});
      return;
    }
    const float* x = read(elements<T>(run.x[0]) + n * classes_, classes_, rows_.row(0));
    float* dx = written(to, rows_.row(1));
    const float scale = *run.scale * weight(label);
    const float smoothing = options_.smoothing;
    const float share = smoothing / static_cast<float>(classes_);  // of a class in the target
    const double sum = sums(run)[n];
    const float top = tops(run)[n];
    const float at_label = narrow_ ? std::exp(x[label] - top) : fast_exp(x[label] - top);
    const auto p = static_cast<float>(static_cast<double>(at_label) / sum);
    if (!narrow_) {
      const auto factor = static_cast<float>(static_cast<double>(scale) / sum);
      exp_gradient(x, classes_, top, factor, share * scale, dx);
    } else {
      narrow_gradient(x, top, sum, scale, share, dx);
    }
    dx[label] = smoothing > 0.0F ? (p - (1.0F - smoothing) - share) * scale : (p - 1.0F) * scale;
    finish(dx, classes_, to);
  }

  void narrow_gradient(const float* x, float top, double sum, float scale, float share,
                       float* dx) const {
    for (int64_t m = 0; m < classes_; ++m) {
      const auto p = static_cast<float>(static_cast<double>(std::exp(x[m] - top)) / sum);
      dx[m] = (p - share) * scale;  // without smoothing share is 0
    }
  }

  int64_t samples_;
  int64_t classes_;
  bool narrow_;
  CrossEntropyOptions options_;
  RowBuffers<T> rows_;
};

}  // namespace

std::unique_ptr<Operation> make_cross_entropy(Shared& shared, const Spec& spec) {
  return by_element(shared.activation, [&]<class T>(T) -> std::unique_ptr<Operation> {
    return std::make_unique<CpuCrossEntropy<T>>(shared, spec_as<CrossEntropySpec>(spec));
  });
}

// The squared error of each target and its gradient, as plain loops.

namespace {

PUSHPULL_SIMD void squares(const float* x, const float* target, int64_t count, float* y) {
  PUSHPULL_ELEMENTWISE
  for (int64_t n = 0; n < count; ++n) y[n] = (x[n] - target[n]) * (x[n] - target[n]);
}

PUSHPULL_SIMD void square_gradients(const float* x, const float* target, int64_t count, float scale,
                                    float* dx) {
  PUSHPULL_ELEMENTWISE
  for (int64_t n = 0; n < count; ++n) dx[n] = (x[n] - target[n]) * (2.0F * scale);
}

// One thread: there is one output per target, and the loops are bound by memory.
template <class T>
class CpuSquaredError final : public Operation {
 public:
  explicit CpuSquaredError(int64_t targets) : targets_(targets) {}

  Needs needs() const override { return {.inputs = 0b11, .gradient_in_input = true}; }
  void forward(const Run& run) override {
    PP_ASSERT(run.valid >= 0 && run.valid <= targets_);
    for (int64_t i = 0; i < run.valid; i += kPiece) {
      const int64_t n = std::min(kPiece, run.valid - i);
      const Reads<T> x(elements<T>(run.x[0]) + i, n);
      squares(x.data(), run.x[1].floats() + i, n, run.y.floats() + i);
    }
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    for (int64_t i = 0; i < targets_; i += kPiece) {
      const int64_t n = std::min(kPiece, targets_ - i);
      const Reads<T> x(elements<T>(run.x[0]) + i, n);
      const Writes<T> dx(elements<T>(run.dx[0]) + i, n);
      square_gradients(x.data(), run.x[1].floats() + i, n, *run.scale, dx.data());
    }
  }

 private:
  int64_t targets_;
};

}  // namespace

std::unique_ptr<Operation> make_squared_error(Shared& shared, const Spec& spec) {
  return by_element(shared.activation, [&]<class T>(T) -> std::unique_ptr<Operation> {
    return std::make_unique<CpuSquaredError<T>>(spec_as<SquaredErrorSpec>(spec).targets());
  });
}

}  // namespace pushpull::ops::cpu
