#include <gtest/gtest.h>

#include "models/ops/cpu/softmax_row.h"
#include "models/ops/losses.h"
#include "tests/models/ops/same_bits.h"

namespace pushpull::cross_entropy_test {
namespace {

using ops::CrossEntropyOptions;
using ops::CrossEntropySpec;
using test::OperationRun;

struct Case {
  int64_t rows = 0;
  int64_t classes = 0;
  CrossEntropyOptions options;

  std::vector<ops::ValueType> inputs() const {
    return {ops::activation({rows, classes}), {ops::Element::kInt, ops::Layout::kPlain, {rows}}};
  }
  std::vector<float> scores(int64_t seed = 1) const {
    std::vector<float> x = test::numbers(rows * classes, seed);
    for (float& value : x) value *= 9.0F;
    return x;
  }
  std::vector<int32_t> labels(int64_t seed = 1) const {
    std::vector<int32_t> out;
    for (int64_t n = 0; n < rows; ++n) {
      out.push_back(static_cast<int32_t>((n * 7919 + seed * 31) % classes));
    }
    if (options.ignored && rows > 2) out[2] = *options.ignored;
    return out;
  }
};

// Returns the losses, with smoothing and weights if `training`, in double.
std::vector<double> losses_of(const Case& c, const std::vector<double>& x,
                              const std::vector<int32_t>& labels, bool training) {
  std::vector<double> out;
  for (int64_t n = 0; n < c.rows; ++n) {
    const int32_t label = labels[static_cast<size_t>(n)];
    if (c.options.ignored == label) {
      out.push_back(0.0);
      continue;
    }
    const double* row = x.data() + n * c.classes;
    const double top = *std::max_element(row, row + c.classes);
    double sum = 0.0;
    for (int64_t m = 0; m < c.classes; ++m) sum += std::exp(row[m] - top);
    const double all = top + std::log(sum);
    double loss = all - row[label];
    if (training) {
      const auto smoothing = static_cast<double>(c.options.smoothing);
      double mean = 0.0;
      for (int64_t m = 0; m < c.classes; ++m) mean += all - row[m];
      mean /= static_cast<double>(c.classes);
      loss = (1.0 - smoothing) * loss + smoothing * mean;
      if (!c.options.class_weights.empty()) {
        loss *= static_cast<double>(c.options.class_weights[static_cast<size_t>(label)]);
      }
    }
    out.push_back(loss);
  }
  return out;
}

std::vector<double> doubles(const std::vector<float>& x) { return {x.begin(), x.end()}; }

// Returns the gradient of scale times the sum of the losses, by differences.
std::vector<double> gradient_of(const Case& c, std::vector<double> x,
                                const std::vector<int32_t>& labels, double scale) {
  constexpr double kStep = 1e-5;
  std::vector<double> out(x.size());
  for (int64_t m = 0; m < c.classes; ++m) {  // rows do not depend on each other
    const auto moved = [&](double by) {
      for (int64_t n = 0; n < c.rows; ++n) x[static_cast<size_t>(n * c.classes + m)] += by;
      return losses_of(c, x, labels, true);
    };
    const std::vector<double> above = moved(kStep);
    const std::vector<double> below = moved(-2.0 * kStep);
    moved(kStep);
    for (int64_t n = 0; n < c.rows; ++n) {
      const auto row = static_cast<size_t>(n);
      out[static_cast<size_t>(n * c.classes + m)] =
          scale * (above[row] - below[row]) / (2.0 * kStep);
    }
  }
  return out;
}

constexpr float kScale = 0.25F;

struct Outcome {
  std::vector<float> y, dx;
};

// One run with the scores and labels of a seed.
class Runner {
 public:
  explicit Runner(const Case& c)
      : spec_({c.rows, c.classes}, c.options), op_(1, spec_, c.inputs()) {
    fill(op_, c, 1);
    predictions_.assign(static_cast<size_t>(c.rows), -1);
    op_.run.predictions.data = predictions_.data();
  }
  static void fill(OperationRun& op, const Case& c, int64_t seed) {
    op.set_input(0, c.scores(seed));
    op.set_input(1, test::as_words(c.labels(seed)));
    op.run.valid = c.rows;
    op.run.scale = &kScale;
  }
  Outcome both() {
    Outcome out;
    out.y = op_.forward();
    op_.backward(std::vector<float>(out.y.size(), test::kPoison));  // a head reads no dy
    out.dx = op_.dx(0);
    return out;
  }
  OperationRun& op() { return op_; }
  const std::vector<int32_t>& predictions() const { return predictions_; }

 private:
  CrossEntropySpec spec_;
  OperationRun op_;
  std::vector<int32_t> predictions_;
};

std::vector<float> weights_of(int64_t classes) {
  std::vector<float> out = test::numbers(classes, 5);
  for (float& value : out) value += 1.5F;
  return out;
}

std::vector<Case> cases() {
  return {{1, 1, {}},
          {5, 10, {}},
          {7, 256, {}},
          {5, 257, {}},
          {3, 1031, {}},
          {6, 11, {-1, 0.0F, {}}},
          {6, 11, {{}, 0.1F, {}}},
          {6, 11, {{}, 0.0F, weights_of(11)}},
          {6, 11, {3, 0.2F, weights_of(11)}},
          {5, 521, {-1, 0.2F, weights_of(521)}}};
}

TEST(CrossEntropyOperation, AgreesWithALoopInDoubleAndItsDifferences) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.classes));
    Runner runner(c);
    const auto [y, dx] = runner.both();
    const std::vector<double> x = doubles(c.scores());
    test::expect_close("losses", y, losses_of(c, x, c.labels(), true), 1e-6);
    test::expect_close("dx", dx, gradient_of(c, x, c.labels(), static_cast<double>(kScale)), 1e-6);
  }
}

TEST(CrossEntropyOperation, EvaluatesThePlainLossOfTheFirstRows) {
  Case c{6, 11, {-1, 0.2F, weights_of(11)}};
  Runner runner(c);
  runner.op().run.training = false;
  runner.op().run.valid = 4;
  runner.op().run.kept = nullptr;
  const std::vector<float> y = runner.op().forward();
  std::vector<double> expected = losses_of(c, doubles(c.scores()), c.labels(), false);
  expected.resize(4);
  test::expect_close("losses", {y.begin(), y.begin() + 4}, expected, 1e-6);
  EXPECT_TRUE(std::isnan(y[4]) && std::isnan(y[5])) << "rows that do not count are not written";
  EXPECT_EQ(runner.predictions()[4], -1);
}

TEST(CrossEntropyOperation, PredictsTheFirstOfTheLargestScores) {
  for (const int64_t classes : {int64_t{5}, int64_t{700}}) {
    const Case c{3, classes, {-1, 0.0F, {}}};
    Runner runner(c);
    std::vector<float> x(static_cast<size_t>(3 * classes), -1.0F);
    x[3] = x[4] = 2.0F;
    x[static_cast<size_t>(2 * classes - 1)] = 2.0F;
    runner.op().set_input(0, x);
    runner.op().forward();
    EXPECT_EQ(runner.predictions(),
              (std::vector<int32_t>{3, static_cast<int32_t>(classes - 1), 0}));
  }
}

TEST(CrossEntropyOperation, ReadsAndWritesTheFirstRowsOnly) {
  for (const bool training : {true, false}) {
    Runner runner({3, 2, {}});
    runner.op().set_input(0, {0.0F, 0.0F, 1.0F, 3.0F, NAN, NAN});
    runner.op().set_input(1, test::as_words({0, 1, -5}));
    runner.op().run.training = training;
    runner.op().run.valid = 2;
    const std::vector<float> y = runner.op().forward();
    EXPECT_FLOAT_EQ(y[0], std::log(2.0F));
    EXPECT_NEAR(y[1], std::log1p(std::exp(-2.0F)), 1e-6F);
    EXPECT_TRUE(std::isnan(y[2])) << "not written";
    EXPECT_EQ(runner.predictions(), (std::vector<int32_t>{0, 1, -1}));
  }
}

TEST(CrossEntropyOperation, OfACertainRowIsExactlyZero) {
  Runner runner({1, 3, {}});
  runner.op().set_input(0, {7.0F, -200.0F, -300.0F});
  runner.op().set_input(1, test::as_words({0}));
  const auto [y, dx] = runner.both();
  EXPECT_EQ(y, std::vector<float>{0.0F});
  EXPECT_EQ(dx, (std::vector<float>{0.0F, 0.0F, 0.0F}));
}

TEST(CrossEntropyOperation, OfHugeScoresIsFinite) {
  Runner runner({2, 3, {}});
  runner.op().set_input(0, {1e4F, -1e4F, 0.0F, 1e30F, 1e30F, -1e30F});
  runner.op().set_input(1, test::as_words({1, 0}));
  const auto [y, dx] = runner.both();
  EXPECT_FLOAT_EQ(y[0], 2e4F);
  EXPECT_FLOAT_EQ(y[1], std::log(2.0F));
  EXPECT_EQ(dx, (std::vector<float>{kScale, -kScale, 0.0F, -0.5F * kScale, 0.5F * kScale, 0.0F}));
}

// The loops that mlp and convnet have always used.
void narrow_loops(const std::vector<float>& x, const std::vector<int32_t>& labels, int64_t classes,
                  std::vector<float>& losses, std::vector<float>& dx) {
  const auto rows = std::ssize(labels);
  const float share = 1.0F / static_cast<float>(rows);
  for (int64_t n = 0; n < rows; ++n) {
    const float* row = x.data() + n * classes;
    std::vector<float> p(static_cast<size_t>(classes));
    const int32_t label = labels[static_cast<size_t>(n)];
    const float top = *std::max_element(row, row + classes);
    double sum = 0.0;
    for (size_t m = 0; m < p.size(); ++m) {
      p[m] = std::exp(row[m] - top);
      sum += static_cast<double>(p[m]);
    }
    for (float& value : p) value = static_cast<float>(static_cast<double>(value) / sum);
    const double distance = static_cast<double>(top) - static_cast<double>(row[label]);
    losses.push_back(static_cast<float>(distance + std::log(sum)));
    for (const float value : p) dx.push_back(value * share);
    const auto at = static_cast<size_t>(label);
    dx[static_cast<size_t>(n * classes) + at] = (p[at] - 1.0F) * share;
  }
}

TEST(CrossEntropyOperation, KeepsTheBitsOfFewClasses) {
  for (const auto& [rows, classes] : {std::pair<int64_t, int64_t>{32, 10}, {7, 3}, {13, 256}}) {
    const Case c{rows, classes, {}};
    Runner runner(c);
    const float scale = 1.0F / static_cast<float>(rows);
    runner.op().run.scale = &scale;
    const auto [y, dx] = runner.both();
    std::vector<float> losses;
    std::vector<float> gradient;
    narrow_loops(c.scores(), c.labels(), classes, losses, gradient);
    EXPECT_TRUE(test::same_bits(y, losses));
    EXPECT_TRUE(test::same_bits(dx, gradient));
  }
}

TEST(CrossEntropyOperation, WritesTheGradientIntoTheMemoryOfTheScores) {
  for (const Case& c : cases()) {
    const Outcome expected = Runner(c).both();
    Runner runner(c);
    OperationRun& op = runner.op();
    ASSERT_TRUE(op.needs().gradient_in_input);
    op.run.dx[0].data = const_cast<float*>(op.run.x[0].floats());
    EXPECT_TRUE(test::same_bits(runner.both().dx, expected.dx));
  }
}

TEST(CrossEntropyOperation, GivesTheBitsOfItsInputsAlone) {
  for (Case c : cases()) {
    c.rows = c.classes > 1 ? 131 : 1;  // enough work for two threads
    const CrossEntropySpec spec({c.rows, c.classes}, c.options);
    test::expect_bits_of_inputs_alone(
        {spec, c.inputs(), [&](OperationRun& op, int64_t seed) { Runner::fill(op, c, seed); }});
  }
}

TEST(FastExp, IsExactAtZeroAndCloseElsewhere) {
  EXPECT_EQ(ops::cpu::fast_exp(0.0F), 1.0F);
  EXPECT_EQ(ops::cpu::fast_exp(-88.0F), 0.0F);
  EXPECT_EQ(ops::cpu::fast_exp(-std::numeric_limits<float>::infinity()), 0.0F);
  EXPECT_TRUE(std::isnan(ops::cpu::fast_exp(test::kPoison)));
  double worst = 0.0;
  for (float x = -87.0F; x <= 80.0F; x += 0x1p-10F) {
    const double right = std::exp(static_cast<double>(x));
    const auto got = static_cast<double>(ops::cpu::fast_exp(x));
    worst = std::max(worst, std::fabs(got - right) / right);
  }
  EXPECT_LT(worst, 1e-7);
}

TEST(SumOfExponentials, AgreesWithDoubleAndIgnoresAlignment) {
  for (const int64_t count : {1, 15, 256, 257, 1000, 50257}) {
    std::vector<float> x = test::numbers(count + 1, 3);
    const float top = ops::cpu::largest(x.data(), count);
    EXPECT_EQ(top, *std::max_element(x.data(), x.data() + count));
    double right = 0.0;
    for (int64_t i = 0; i < count; ++i) {
      right += std::exp(static_cast<double>(x[static_cast<size_t>(i)]) - static_cast<double>(top));
    }
    const double sum = ops::cpu::exp_sum(x.data(), count, top);
    EXPECT_NEAR(sum, right, 1e-7 * right);
    std::vector<float> e(x.size());
    EXPECT_EQ(ops::cpu::exp_row(x.data(), count, top, e.data()), sum);
    std::copy_backward(x.begin(), x.end() - 1, x.end());
    EXPECT_EQ(ops::cpu::exp_sum(x.data() + 1, count, top), sum);
  }
}

}  // namespace
}  // namespace pushpull::cross_entropy_test
