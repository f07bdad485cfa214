#include "models/ops/attention.h"

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "tests/models/ops/same_bits.h"

namespace pushpull::attention_test {
namespace {

using ops::AttentionShape;
using ops::AttentionSpec;
using test::OperationRun;

constexpr uint64_t kKey = 0x0123456789abcdef;

std::vector<ops::ValueType> inputs_of(const AttentionShape& shape) {
  const int64_t width = shape.heads * shape.width;
  const ops::ValueType value =
      ops::activation({shape.samples, shape.positions, shape.packed ? 3 * width : width});
  std::vector<ops::ValueType> out(shape.packed ? 1 : 3, value);
  if (shape.mask) {
    out.push_back({ops::Element::kInt, ops::Layout::kPlain, {shape.samples, shape.positions}});
  }
  return out;
}

// Hides the last third of each sample, and all of the second sample.
std::vector<int32_t> mask_of(const AttentionShape& shape) {
  std::vector<int32_t> out;
  for (int64_t n = 0; n < shape.samples; ++n) {
    for (int64_t j = 0; j < shape.positions; ++j) {
      out.push_back(n != 1 && j * 3 < shape.positions * 2 ? 1 : 0);
    }
  }
  return out;
}

// q, k and v [N, T, E] of a seed.
struct Values {
  std::array<std::vector<float>, 3> of;

  Values(const AttentionShape& shape, int64_t seed) {
    const int64_t count = shape.samples * shape.positions * shape.heads * shape.width;
    for (size_t i = 0; i < 3; ++i) {
      of[i] = test::numbers(count, seed + static_cast<int64_t>(i));
      for (float& value : of[i]) value *= 2.0F;
    }
  }
};

// Returns [N, T, 3E] of three [N, T, E].
template <class T>
std::vector<T> packed(const AttentionShape& shape, const std::array<std::vector<T>, 3>& parts) {
  const auto width = static_cast<size_t>(shape.heads * shape.width);
  std::vector<T> out;
  for (size_t row = 0; row < parts[0].size(); row += width) {
    for (const std::vector<T>& part : parts) {
      for (size_t e = row; e < row + width; ++e) out.push_back(part[e]);
    }
  }
  return out;
}

void fill(OperationRun& op, const AttentionShape& shape, int64_t seed) {
  const Values values(shape, seed);
  if (shape.packed) {
    op.set_input(0, packed(shape, values.of));
  } else {
    for (size_t i = 0; i < 3; ++i) op.set_input(i, values.of[i]);
  }
  if (shape.mask) op.set_input(shape.packed ? 1 : 3, test::as_words(mask_of(shape)));
  op.run.key = &kKey;
}

struct Expected {
  std::vector<double> y;
  std::array<std::vector<double>, 3> dx;
};

// A plain loop in double over one query of one head.
class Query {
 public:
  Query(const AttentionShape& shape, const std::array<std::vector<double>, 3>& x, bool training)
      : shape_(shape), x_(x), training_(training) {}

  // Computes the softmax and, for dropout, how often each key counts.
  void look(int64_t n, int64_t h, int64_t i) {
    n_ = n, h_ = h, i_ = i;
    p_.assign(static_cast<size_t>(shape_.positions), 0.0);
    factors_.assign(p_.size(), 1.0);
    const std::vector<int32_t> mask = mask_of(shape_);
    double sum = 0.0;
    for (int64_t j = 0; j < shape_.positions; ++j) {
      const bool hidden = (shape_.causal && j > i) ||
                          (shape_.mask && mask[static_cast<size_t>(n * shape_.positions + j)] == 0);
      if (hidden) continue;
      double score = 0.0;
      for (int64_t d = 0; d < shape_.width; ++d) score += at(0, i, d) * at(1, j, d);
      p_[static_cast<size_t>(j)] = std::exp(score * scale());
      sum += p_[static_cast<size_t>(j)];
      if (training_ && shape_.dropout > 0.0F) drop(j);
    }
    for (double& p : p_) p = sum > 0.0 ? p / sum : 0.0;
  }
  void add_output(std::vector<double>& y) const {
    for (int64_t j = 0; j < shape_.positions; ++j) {
      const auto key = static_cast<size_t>(j);
      for (int64_t d = 0; d < shape_.width; ++d) {
        y[place(i_, d)] += p_[key] * factors_[key] * at(2, j, d);
      }
    }
  }
  void add_gradients(const std::vector<double>& dy, Expected& out) const {
    std::vector<double> dp(p_.size());
    double delta = 0.0;
    for (int64_t j = 0; j < shape_.positions; ++j) {
      const auto key = static_cast<size_t>(j);
      for (int64_t d = 0; d < shape_.width; ++d) {
        dp[key] += dy[place(i_, d)] * at(2, j, d) * factors_[key];
        out.dx[2][place(j, d)] += p_[key] * factors_[key] * dy[place(i_, d)];
      }
      delta += p_[key] * dp[key];
    }
    for (int64_t j = 0; j < shape_.positions; ++j) {
      const auto key = static_cast<size_t>(j);
      const double ds = p_[key] * (dp[key] - delta) * scale();
      for (int64_t d = 0; d < shape_.width; ++d) {
        out.dx[0][place(i_, d)] += ds * at(1, j, d);
        out.dx[1][place(j, d)] += ds * at(0, i_, d);
      }
    }
  }

 private:
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(shape_.width)); }
  size_t place(int64_t position, int64_t d) const {
    return static_cast<size_t>(
        ((n_ * shape_.positions + position) * shape_.heads + h_) * shape_.width + d);
  }
  double at(size_t which, int64_t position, int64_t d) const {
    return x_[which][place(position, d)];
  }
  void drop(int64_t j) {
    const auto element = static_cast<uint64_t>(
        ((n_ * shape_.heads + h_) * shape_.positions + i_) * shape_.positions + j);
    const uint32_t word = dropout_words(kKey, element / 4)[element % 4];
    const auto p = static_cast<double>(shape_.dropout);
    factors_[static_cast<size_t>(j)] =
        static_cast<double>(word) >= p * 0x1p32 ? 1.0 / (1.0 - p) : 0.0;
  }

  const AttentionShape& shape_;
  const std::array<std::vector<double>, 3>& x_;
  bool training_;
  int64_t n_ = 0, h_ = 0, i_ = 0;
  std::vector<double> p_, factors_;
};

std::array<std::vector<double>, 3> in_double(const Values& values) {
  std::array<std::vector<double>, 3> out;
  for (size_t i = 0; i < 3; ++i) out[i].assign(values.of[i].begin(), values.of[i].end());
  return out;
}

Expected loops(const AttentionShape& shape, const std::array<std::vector<double>, 3>& x,
               const std::vector<double>& dy, bool training = true) {
  Expected out;
  out.y.assign(x[0].size(), 0.0);
  for (std::vector<double>& dx : out.dx) dx.assign(x[0].size(), 0.0);
  Query query(shape, x, training);
  for (int64_t n = 0; n < shape.samples; ++n) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      for (int64_t i = 0; i < shape.positions; ++i) {
        query.look(n, h, i);
        query.add_output(out.y);
        if (!dy.empty()) query.add_gradients(dy, out);
      }
    }
  }
  return out;
}

void expect_agreement(const AttentionShape& shape) {
  SCOPED_TRACE(std::to_string(shape.samples) + " x " + std::to_string(shape.positions) + ", " +
               std::to_string(shape.heads) + " heads of " + std::to_string(shape.width) +
               (shape.causal ? ", causal" : "") + (shape.packed ? ", packed" : "") +
               (shape.mask ? ", mask" : ""));
  const AttentionSpec spec(shape);
  OperationRun op(1, spec, inputs_of(shape));
  fill(op, shape, 1);
  const std::vector<float> dy = test::numbers(spec.output().shape.size(), 9);
  const Expected expected = loops(shape, in_double(Values(shape, 1)), {dy.begin(), dy.end()});
  test::expect_close("y", op.forward(), expected.y, 3e-6);
  op.backward(dy);
  if (shape.packed) {
    test::expect_close("dqkv", op.dx(0), packed(shape, expected.dx), 3e-6);
    return;
  }
  test::expect_close("dq", op.dx(0), expected.dx[0], 3e-6);
  test::expect_close("dk", op.dx(1), expected.dx[1], 3e-6);
  test::expect_close("dv", op.dx(2), expected.dx[2], 3e-6);
}

AttentionShape shape_of(int64_t samples, int64_t positions, int64_t heads, int64_t width) {
  AttentionShape shape;
  shape.samples = samples, shape.positions = positions;
  shape.heads = heads, shape.width = width;
  return shape;
}

// Each size with each combination of causal, packed, mask and dropout. 64 queries are one block.
std::vector<AttentionShape> all_shapes() {
  std::vector<AttentionShape> out;
  for (const AttentionShape& size : {shape_of(1, 1, 1, 1), shape_of(3, 13, 3, 5),
                                     shape_of(2, 64, 2, 16), shape_of(2, 131, 2, 8)}) {
    for (int bits = 0; bits < 16; ++bits) {
      AttentionShape shape = size;
      shape.causal = (bits & 1) != 0;
      shape.packed = (bits & 2) != 0;
      shape.mask = (bits & 4) != 0;
      shape.dropout = (bits & 8) != 0 ? 0.25F : 0.0F;
      out.push_back(shape);
    }
  }
  return out;
}

TEST(AttentionOperation, AgreesWithALoopInDouble) {
  for (const AttentionShape& shape : all_shapes()) expect_agreement(shape);
}

TEST(AttentionOperation, AgreesOverManyKeys) {
  AttentionShape shape = shape_of(1, 2000, 2, 16);
  shape.packed = true;
  expect_agreement(shape);
  shape.causal = true;
  shape.dropout = 0.1F;
  expect_agreement(shape);
}

// The gradient of the loop itself, against differences of its output.
TEST(AttentionLoop, HasTheGradientOfItsDifferences) {
  AttentionShape shape = shape_of(2, 5, 2, 3);
  shape.causal = true;
  shape.mask = true;
  shape.dropout = 0.25F;
  std::array<std::vector<double>, 3> x = in_double(Values(shape, 1));
  const std::vector<float> numbers = test::numbers(std::ssize(x[0]), 9);
  const std::vector<double> dy(numbers.begin(), numbers.end());
  const Expected expected = loops(shape, x, dy);
  constexpr double kStep = 1e-6;
  const auto weighted = [&] {
    double sum = 0.0;
    const std::vector<double> y = loops(shape, x, {}).y;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  };
  for (size_t which = 0; which < 3; ++which) {
    for (size_t i = 0; i < x[which].size(); ++i) {
      const double before = x[which][i];
      x[which][i] = before + kStep;
      const double above = weighted();
      x[which][i] = before - kStep;
      const double below = weighted();
      x[which][i] = before;
      ASSERT_NEAR(expected.dx[which][i], (above - below) / (2.0 * kStep), 1e-7);
    }
  }
}

TEST(AttentionOperation, GivesZeroToAQueryThatSeesNoKey) {
  AttentionShape shape = shape_of(2, 70, 2, 4);
  shape.mask = true;  // hides all of the second sample
  const AttentionSpec spec(shape);
  OperationRun op(1, spec, inputs_of(shape));
  fill(op, shape, 1);
  const std::vector<float> y = op.forward();
  const std::ptrdiff_t second = std::ssize(y) / 2;
  const std::vector<float> zeros(static_cast<size_t>(second), 0.0F);
  EXPECT_EQ(std::vector<float>(y.begin() + second, y.end()), zeros);
  op.backward(test::numbers(std::ssize(y), 9));
  for (size_t i = 0; i < 3; ++i) {
    const std::vector<float> dx = op.dx(i);
    EXPECT_EQ(std::vector<float>(dx.begin() + second, dx.end()), zeros) << i;
  }
}

TEST(AttentionOperation, EvaluatesWithoutDropoutAndKeepsNothing) {
  AttentionShape shape = shape_of(2, 13, 2, 4);
  shape.dropout = 0.5F;
  const AttentionSpec spec(shape);
  OperationRun op(1, spec, inputs_of(shape));
  fill(op, shape, 1);
  op.run.training = false;
  op.run.key = nullptr;
  op.run.kept = nullptr;
  test::expect_close("y", op.forward(), loops(shape, in_double(Values(shape, 1)), {}, false).y,
                     3e-6);
}

TEST(AttentionOperation, KeepsMemoryLinearInThePositions) {
  const auto kept = [](int64_t positions) {
    const AttentionSpec spec(shape_of(2, positions, 3, 4));
    return OperationRun(1, spec, inputs_of(spec.shape())).needs().kept_bytes;
  };
  EXPECT_EQ(kept(50), 2 * 3 * 50 * sizeof(float));
  EXPECT_EQ(kept(500), 10 * kept(50));
}

TEST(AttentionOperation, GivesOnlyTheGradientsThatAreWanted) {
  const AttentionShape shape = shape_of(1, 13, 2, 4);
  const AttentionSpec spec(shape);
  OperationRun all(1, spec, inputs_of(shape));
  OperationRun one(1, spec, inputs_of(shape), 0b101);
  const std::vector<float> dy = test::numbers(spec.output().shape.size(), 9);
  for (OperationRun* op : {&all, &one}) {
    fill(*op, shape, 1);
    op->forward();
    op->backward(dy);
  }
  EXPECT_TRUE(test::same_bits(all.dx(1), one.dx(1)));
}

// oneDNN may divide the sums of a product by the number of threads.
TEST(AttentionOperation, GivesTheBitsOfItsInputsAlone) {
  for (const AttentionShape& shape : all_shapes()) {
    const AttentionSpec spec(shape);
    test::expect_bits_of_inputs_alone(
        {spec, inputs_of(shape), [&](OperationRun& op, int64_t seed) { fill(op, shape, seed); },
         shape.packed ? size_t{1} : size_t{3}, false,
         // dP - D of a single key is the rounding of a sum of products below 1, where f32 has 0
         0x1p-7F});
  }
}

TEST(AttentionOperation, AgreesWithADifferentNumberOfThreads) {
  AttentionShape shape = shape_of(2, 131, 2, 16);
  shape.causal = true;
  shape.packed = true;
  const AttentionSpec spec(shape);
  const std::vector<float> dy = test::numbers(spec.output().shape.size(), 9);
  const Expected expected = loops(shape, in_double(Values(shape, 1)), {dy.begin(), dy.end()});
  for (int run = 0; run < 2; ++run) {
    OperationRun op(2, spec, inputs_of(shape));
    fill(op, shape, 1);
    test::expect_close("y", op.forward(), expected.y, 3e-6);
    op.backward(dy);
    test::expect_close("dqkv", op.dx(0), packed(shape, expected.dx), 3e-6);
  }
}

}  // namespace
}  // namespace pushpull::attention_test
