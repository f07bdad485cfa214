// Checks that the bits of an operation depend on its inputs alone: not on the number of threads, an
// earlier run, another micro-batch between forward and backward, or where y and dx lie; and that
// bf16 gives what f32 gives, but for rounding.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/models/ops/operation_run.h"

namespace pushpull::test {

// One operation and how to fill its inputs and parameters for micro-batch `seed`.
struct BitsCase {
  const ops::Spec& spec;
  std::vector<ops::ValueType> inputs;
  std::function<void(OperationRun&, int64_t seed)> fill;
  size_t gradients = 1;         // inputs that have one
  bool any_threads = true;      // false: oneDNN's sums may depend on their number
  float bf16_absolute = 1e-5F;  // tolerance of bf16 beside f32, see expect_bf16_near_f32
};

struct Results {
  std::vector<std::vector<float>> tensors;

  void add_gradients(const OperationRun& op, const BitsCase& of) {
    for (size_t i = 0; i < of.gradients; ++i) tensors.push_back(op.dx(i));
    for (size_t i = 0; i < of.spec.params().size(); ++i) tensors.push_back(op.dw(i));
  }
};

inline std::vector<float> gradient_of_output(const BitsCase& of, int64_t seed) {
  return numbers(of.spec.output().shape.size(), seed + 50);
}

inline void expect_same(const char* what, const Results& a, const Results& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_TRUE(same_bits(a.tensors[i], b.tensors[i])) << what << ", tensor " << i;
  }
}

inline Results run_once(OperationRun& op, const BitsCase& of, int64_t seed) {
  Results out;
  of.fill(op, seed);
  out.tensors.push_back(op.forward());
  op.backward(gradient_of_output(of, seed));
  out.add_gradients(op, of);
  return out;
}

// Lets y lie in x[0] and dx[0] in dy where the operation allows it.
inline Results run_in_place(const BitsCase& of, int64_t seed, ops::Precision precision) {
  OperationRun op(1, of.spec, of.inputs, 0, precision);
  if (op.needs().in_place) op.put_output_in_input();
  if (op.needs().gradient_in_place) op.put_gradient_in_place();
  return run_once(op, of, seed);
}

inline void expect_bits_in(const BitsCase& of, ops::Precision precision) {
  SCOPED_TRACE(to_string(precision));
  OperationRun a(1, of.spec, of.inputs, 0, precision);
  const Results first = run_once(a, of, 1);
  const Results second = run_once(a, of, 2);
  expect_same("again", first, run_once(a, of, 1));
  if (of.any_threads) {
    OperationRun two(2, of.spec, of.inputs, 0, precision);
    expect_same("two threads", first, run_once(two, of, 1));
  }
  expect_same("in place", first, run_in_place(of, 1, precision));

  OperationRun b(1, of.spec, of.inputs, 0, precision);
  b.share_plan(a);
  of.fill(a, 1);
  of.fill(b, 2);
  Results between_a, between_b;
  between_a.tensors.push_back(a.forward());
  between_b.tensors.push_back(b.forward());
  a.backward(gradient_of_output(of, 1));
  b.backward(gradient_of_output(of, 2));
  between_a.add_gradients(a, of);
  between_b.add_gradients(b, of);
  expect_same("micro-batch 1 of two", first, between_a);
  expect_same("micro-batch 2 of two", second, between_b);
}

// Compares bf16 with f32 on the same numbers, which bf16 represents exactly, as are the products of
// two of them in f32. So the results differ by the order of sums in f32, and by a rounding of 2^-9 of
// each tensor that is written and of each factor in between: kRoundings covers the longest chain
// (attention: P, y, dS and dq), relative to the tensor's largest value because sums cancel. The absolute part is
// for tensors that are zero but for rounding.
inline void expect_bf16_near_f32(const BitsCase& of) {
  constexpr float kRoundings = 4.0F;
  OperationRun wide(1, of.spec, of.inputs);
  OperationRun narrow(1, of.spec, of.inputs, 0, ops::Precision::kBf16);
  wide.round();
  narrow.round();
  const Results want = run_once(wide, of, 1);
  const Results got = run_once(narrow, of, 1);
  ASSERT_EQ(got.tensors.size(), want.tensors.size());
  for (size_t t = 0; t < want.tensors.size(); ++t) {
    float largest = 0.0F;
    for (const float value : want.tensors[t]) largest = std::fmax(largest, std::fabs(value));
    const float tolerance = of.bf16_absolute + kRoundings * 0x1p-8F * largest;
    for (size_t i = 0; i < want.tensors[t].size(); ++i) {
      if (std::isnan(want.tensors[t][i]) && std::isnan(got.tensors[t][i])) continue;
      ASSERT_NEAR(got.tensors[t][i], want.tensors[t][i], tolerance) << "tensor " << t << ", " << i;
    }
  }
}

// In f32, and in bf16 if this processor computes in it (Bf16.IsTestedOnThisProcessor says so).
inline void expect_bits_of_inputs_alone(const BitsCase& of) {
  expect_bits_in(of, ops::Precision::kFp32);
  if (!ops::cpu_has_bf16()) return;
  expect_bits_in(of, ops::Precision::kBf16);
  expect_bf16_near_f32(of);
}

}  // namespace pushpull::test
