// Checks that the bits of an operation depend on its inputs alone: not on the number of threads, an
// earlier run, another micro-batch between forward and backward, or where y and dx lie.
#pragma once

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
  size_t gradients = 1;     // inputs that have one
  bool any_threads = true;  // false: oneDNN's sums may depend on their number
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
inline Results run_in_place(const BitsCase& of, int64_t seed) {
  OperationRun op(1, of.spec, of.inputs);
  if (op.needs().in_place) op.put_output_in_input();
  if (op.needs().gradient_in_place) op.put_gradient_in_place();
  return run_once(op, of, seed);
}

inline void expect_bits_of_inputs_alone(const BitsCase& of) {
  OperationRun a(1, of.spec, of.inputs);
  const Results first = run_once(a, of, 1);
  const Results second = run_once(a, of, 2);
  expect_same("again", first, run_once(a, of, 1));
  if (of.any_threads) {
    OperationRun two(2, of.spec, of.inputs);
    expect_same("two threads", first, run_once(two, of, 1));
  }
  expect_same("in place", first, run_in_place(of, 1));

  OperationRun b(1, of.spec, of.inputs);
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

}  // namespace pushpull::test
