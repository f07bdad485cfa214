// Runs one operation of the CPU backend on vectors: for tests that compare it with a plain loop in
// double. Outputs are poisoned, parameters lie at odd addresses.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "models/ops/number.h"
#include "models/ops/operation.h"

namespace pushpull::test {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

// Memory aligned as the backend's, and memory that is only aligned to a float.
class Aligned {
 public:
  explicit Aligned(size_t floats, size_t shift = 0) : storage_(floats + 32, kPoison) {
    const auto address = reinterpret_cast<uintptr_t>(storage_.data());
    const size_t skip = (64 - address % 64) % 64 / sizeof(float);
    data_ = storage_.data() + skip + shift;
    size_ = floats;
  }
  float* data() const { return data_; }
  void fill(float value) const { std::fill_n(data_, size_, value); }
  std::vector<float> copy() const { return copy_from(data_); }
  // Returns as many floats from another place.
  std::vector<float> copy_from(const float* place) const { return {place, place + size_}; }

 private:
  mutable std::vector<float> storage_;
  float* data_ = nullptr;
  size_t size_ = 0;
};

// One value in memory, of floats, ints or bf16.
class Value {
 public:
  // count: elements, with those that pad its blocks.
  Value(size_t count, bool is_short)
      : memory_(is_short ? (count + 1) / 2 : count), count_(count), is_short_(is_short) {}

  void* data() const { return memory_.data(); }
  void set(const std::vector<float>& values) const {
    for (size_t i = 0; i < values.size(); ++i) put(i, values[i]);
  }
  void fill(float value) const {
    for (size_t i = 0; i < count_; ++i) put(i, value);
  }
  // Returns as many elements from another place.
  std::vector<float> copy_from(const void* place) const {
    std::vector<float> out(count_);
    for (size_t i = 0; i < count_; ++i) {
      out[i] = is_short_ ? to_float(static_cast<const ops::Bf16*>(place)[i])
                         : static_cast<const float*>(place)[i];
    }
    return out;
  }

 private:
  void put(size_t i, float value) const {
    if (is_short_) {
      reinterpret_cast<ops::Bf16*>(memory_.data())[i] = ops::from_float<ops::Bf16>(value);
    } else {
      memory_.data()[i] = value;
    }
  }

  Aligned memory_;
  size_t count_;
  bool is_short_;
};

// One operation with memory for all that a run touches. Ints are given as the floats of their bits
// (`as_words`).
class OperationRun {
 public:
  // inputs: the types of the inputs. Those that have no gradient are named in `without` (bit i).
  OperationRun(int threads, const ops::Spec& spec, const std::vector<ops::ValueType>& inputs,
               uint32_t without = 0, ops::Precision precision = ops::Precision::kFp32)
      : backend_(ops::make_cpu_backend(threads, precision)),
        is_short_(precision == ops::Precision::kBf16),
        spec_(spec) {
    spec.check("node", inputs);
    op_ = backend_->plan(spec);
    needs_ = op_->needs();
    run.training = true;
    for (size_t i = 0; i < inputs.size(); ++i) {
      x_.push_back(value_of(inputs[i]));
      dx_.push_back(value_of(inputs[i]));
      is_activation_.push_back(inputs[i].element == ops::Element::kActivation);
      run.x[i].data = x_[i].data();
      const bool has = inputs[i].element != ops::Element::kInt && (without >> i & 1U) == 0;
      if (has) run.dx[i].data = dx_[i].data();
    }
    const std::vector<ops::Shape> params = spec.params();
    for (size_t i = 0; i < params.size(); ++i) {
      w_.emplace_back(static_cast<size_t>(params[i].size()), 1 + i);
      dw_.emplace_back(static_cast<size_t>(params[i].size()), 3 + i);
      run.w[i] = w_[i].data();
      run.dw[i] = dw_[i].data();
    }
    y_.push_back(value_of(spec.output()));
    dy_.push_back(value_of(spec.output()));
    kept_.emplace_back((needs_.kept_bytes + 3) / 4);
    run.y.data = y_[0].data();
    run.dy.data = dy_[0].data();
    run.kept = kept_[0].data();
  }

  void set_input(size_t i, const std::vector<float>& values) {
    x_[i].set(is_activation_[i] ? rounded(values) : values);
  }
  void set_param(size_t i, const std::vector<float>& values) {
    std::ranges::copy(rounded(values), w_[i].data());
  }
  std::vector<float> forward() {
    y_[0].fill(kPoison);
    const ops::Backend::Scope scope(*backend_);
    op_->forward(run);
    return y_[0].copy_from(run.y.data);
  }
  // Returns the bounds of the gradients of parameters, after backward_weights. dy is kept.
  ops::GradientBounds bounds(const std::vector<float>& dy) {
    dy_[0].set(dy);
    const ops::Backend::Scope scope(*backend_);
    op_->backward_weights(run);
    return op_->bounds(run);
  }
  // Overwrites all gradients unless run.adds says otherwise.
  void backward(const std::vector<float>& dy) {
    for (const Value& dx : dx_) dx.fill(kPoison);
    dy_[0].set(rounded(dy));
    for (size_t i = 0; i < dw_.size(); ++i) {
      if ((run.adds >> i & 1U) == 0) dw_[i].fill(kPoison);
    }
    // what backward does not need may be gone
    for (size_t i = 0; i < x_.size(); ++i) {
      const bool is_output = run.y.data == x_[i].data();
      const bool is_read = (needs_.inputs >> i & 1U) != 0 || (is_output && needs_.output);
      if (!is_read && run.dx[i].data != nullptr) x_[i].fill(kPoison);
    }
    if (!needs_.output) y_[0].fill(kPoison);
    const ops::Backend::Scope scope(*backend_);
    op_->backward_weights(run);
    op_->backward_data(run);
  }
  std::vector<float> dx(size_t i) const { return dx_[i].copy_from(run.dx[i].data); }
  std::vector<float> dw(size_t i) const { return dw_[i].copy(); }
  void set_dw(size_t i, const std::vector<float>& values) {
    std::copy(values.begin(), values.end(), dw_[i].data());
  }
  const ops::Needs& needs() const { return needs_; }
  void put_output_in_input() { run.y.data = x_[0].data(); }
  void put_gradient_in_place() { run.dx[0].data = dy_[0].data(); }
  // Runs the plan of `other` from now on, in this object's memory: another micro-batch.
  void share_plan(const OperationRun& other) {
    op_ = other.op_;
    backend_ = other.backend_;
  }

  // Rounds later inputs, parameters and gradients to bf16, as a run in bf16 does.
  void round() { rounds_ = true; }

  ops::Run run;  // change key, scale, valid, training, adds as the test needs

 private:
  Value value_of(const ops::ValueType& type) const {
    const auto wide = ops::make_cpu_backend(1);
    const bool is_activation = type.element == ops::Element::kActivation;
    return {ops::floats_of(*wide, type), is_short_ && is_activation};
  }
  std::vector<float> rounded(std::vector<float> values) const {
    if (!rounds_) return values;
    for (float& value : values) value = ops::rounded<ops::Bf16>(value);
    return values;
  }

  std::shared_ptr<ops::Backend> backend_;
  bool is_short_;
  bool rounds_ = false;
  const ops::Spec& spec_;
  std::shared_ptr<ops::Operation> op_;
  ops::Needs needs_;
  std::vector<Value> x_, dx_, y_, dy_;
  std::vector<bool> is_activation_;
  std::vector<Aligned> w_, dw_, kept_;
};

// Returns different numbers in -1..1.
inline std::vector<float> numbers(int64_t count, int64_t seed) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(static_cast<float>((i * 7919 + seed * 104729) % 20011) / 10005.5F - 1.0F);
  }
  return out;
}

// Returns numbers that activations of that precision represent exactly.
inline std::vector<float> numbers(int64_t count, int64_t seed, ops::Precision precision) {
  std::vector<float> out = numbers(count, seed);
  if (precision == ops::Precision::kFp32) return out;
  for (float& value : out) value = ops::rounded<ops::Bf16>(value);
  return out;
}

// Returns the precisions of the CPU backend on this processor (Bf16.IsTestedOnThisProcessor).
inline std::vector<ops::Precision> cpu_precisions() {
  if (!ops::cpu_has_bf16()) return {ops::Precision::kFp32};
  return {ops::Precision::kFp32, ops::Precision::kBf16};
}

// Returns the tolerance of results that are stored `roundings` times as activations.
inline double tolerance_in(ops::Precision precision, double of_fp32, int roundings) {
  return of_fp32 + (precision == ops::Precision::kBf16 ? roundings * 0x1p-8 : 0.0);
}

inline std::vector<float> as_words(const std::vector<int32_t>& ints) {
  std::vector<float> out;
  for (const int32_t i : ints) out.push_back(std::bit_cast<float>(i));
  return out;
}

// Compares with values in double. The tolerance is relative to the largest one.
inline void expect_close(const char* what, const std::vector<float>& got,
                         const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 1e-3;
  for (const double value : want) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(got[i]), want[i], tolerance * largest) << what << " " << i;
  }
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

}  // namespace pushpull::test
