// Twenty training steps on each backend, compared with the CPU: the distance of the final weights,
// as a share of the distance that training moved them. Weights and images rounded to fewer bits
// show on the CPU how far a precision may be off.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/models/backend_case.h"
#include "tests/models/fixture.h"
#include "tests/models/plain_steps.h"

namespace pushpull {
namespace {

constexpr int kSteps = 20;

struct Training {
  std::vector<float> weights;
  std::vector<float> losses;
};

// Returns samples with something to learn: certain pixels are brighter, depending on the label.
Inputs samples(const Case& c, uint64_t seed) {
  Inputs inputs(c, seed);
  const int64_t floats = c.input.size();
  for (int64_t n = 0; n < c.micro_batch; ++n) {
    for (int64_t i = inputs.labels[static_cast<size_t>(n)]; i < floats; i += c.classes) {
      inputs.images[static_cast<size_t>(n * floats + i)] += 1.0F;
    }
  }
  return inputs;
}

struct Variation {
  int bits = 24;        // of the weights and images used in the computation
  int wrong_steps = 0;  // last steps with labels of other images
};

Training run(const Case& c, const Variation& variation = {}) {
  const auto model = c.make();
  Training out;
  out.weights = initial_weights(model->table(), 1);
  for (int step = 0; step < kSteps; ++step) {
    Inputs inputs = samples(c, static_cast<uint64_t>(step));
    if (step >= kSteps - variation.wrong_steps) std::ranges::reverse(inputs.labels);
    std::vector<float> weights = out.weights;
    for (float& w : weights) w = test::rounded(w, variation.bits);
    for (float& x : inputs.images) x = test::rounded(x, variation.bits);
    const Result result = train(*model, weights, inputs);
    out.losses.push_back(result.loss);
    test::descend(model->table(), c.model == "mlp" ? 0.4F : 0.1F, result.gradients, out.weights);
  }
  return out;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += d * d;
  }
  return std::sqrt(sum);
}

// Returns the distance as a share of the distance that `reference` has moved.
double apart(const Case& c, const Training& training, const Training& reference) {
  const std::vector<float> begin = initial_weights(c.make()->table(), 1);
  return distance(training.weights, reference.weights) / distance(begin, reference.weights);
}

// Roundings alone add up to little (1e-6 in fp32). Occasionally a rounding crosses a ReLU or
// changes a maximum, which moves the weights by a sample's share in any precision, and more often
// with fewer bits. Measured on the CPU: 0.004 with 23 bits, 0.03 with 11, 0.07 with 8.
double max_distance(const BackendCase& backend) {
  if (backend.bits() == 24) return 0.02;
  return backend.bits() == 8 ? 0.12 : 0.06;
}

// Returns the bound of the distance between two losses of a step, relative to the first loss. With 8
// bits the CPU reaches 0.13, in the steps in which convnet's loss falls fastest.
double max_loss_distance(const BackendCase& backend) {
  return backend.bits() == 8 ? 0.16 : max_distance(backend);
}

std::vector<Case> cases() {
  return {{.input = {1, 8, 8}, .micro_batch = 128, .hidden = {64, 32}},
          {.model = "convnet", .input = {1, 12, 12}, .micro_batch = 128}};
}

class TwentySteps : public OnBackend {};

TEST_P(TwentySteps, EndNearTheCpu) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    const Training reference = run(c);
    const Training training = run(on(c));
    const double off = apart(c, training, reference);
    std::printf("%s: %.2g of the way\n", c.model.c_str(), off);
    const bool is_exact = !GetParam().needs_device && !GetParam().is_short();
    EXPECT_LE(off, is_exact ? 0.0 : max_distance(GetParam()));
    for (size_t step = 0; step < training.losses.size(); ++step) {
      EXPECT_NEAR(training.losses[step], reference.losses[step],
                  max_loss_distance(GetParam()) * reference.losses.front());
    }
    EXPECT_LT(training.losses.back(), 0.95F * training.losses.front());
  }
}

// The bounds cover rounding alone: four wrong steps exceed them.
TEST(TwentyStepsBounds, HoldForRoundedNumbersButNotForWrongSteps) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    const Training reference = run(c);
    for (const ops::Precision precision :
         {ops::Precision::kFp32, ops::Precision::kTf32, ops::Precision::kBf16}) {
      const BackendCase rounds{.name = "", .make = {}, .precision = precision};
      const int bits = std::min(rounds.bits(), 23);
      const Training training = run(c, {.bits = bits});
      const double off = apart(c, training, reference);
      for (size_t step = 0; bits == 8 && step < training.losses.size(); ++step) {
        EXPECT_NEAR(training.losses[step], reference.losses[step],
                    max_loss_distance(rounds) * reference.losses.front());
      }
      EXPECT_GT(off, 0.0);
      EXPECT_LE(off, max_distance(rounds)) << to_string(precision);
      const double wrong = apart(c, run(c, {.bits = bits, .wrong_steps = 4}), reference);
      EXPECT_GT(wrong, max_distance(rounds)) << to_string(precision);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, TwentySteps, testing::ValuesIn(all_backends()), case_name);

}  // namespace
}  // namespace pushpull
