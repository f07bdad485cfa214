// The loss scale of a device: it multiplies gradients on their way through the layers, but not the
// gradients that come out.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/models/backend_case.h"
#include "tests/models/fixture.h"

namespace pushpull {
namespace {

class LossScale : public OnBackend {
 protected:
  static Case on_device(Case c, float scale) {
    c.backend = [scale](int threads) {
      return ops::make_backend({.device = {device::DeviceName::kCuda, 0},
                                .threads = threads,
                                .precision = GetParam().precision,
                                .loss_scale = scale});
    };
    return c;
  }
};

class LossScaleOfFp16 : public LossScale {};

// A power of two changes only exponents, and these types have room for it.
TEST_P(LossScale, ChangesNoBitIfNothingUnderflows) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(describe(c));
    const auto one = on_device(c, 1.0F).make();
    const auto many = on_device(c, 1024.0F).make();
    const std::vector<float> weights = initial_weights(one->table(), 1);
    EXPECT_EQ(train(*many, weights, Inputs(c)), train(*one, weights, Inputs(c)));
  }
}

// With equal logits of 1,000 classes and the mean over 40,000 samples, the gradient of a logit is
// 2.5e-8. Without a scale fp16 rounds values below 3.0e-8 to zero. The gradient of the bias is the
// sum over the samples.
TEST_P(LossScaleOfFp16, KeepsGradientsThatWouldUnderflow) {
  const Case c{.input = {1, 2, 2}, .classes = 1000, .micro_batch = 40'000, .hidden = {}};
  Inputs inputs(c);
  std::ranges::fill(inputs.labels, 0);
  for (const float scale : {1.0F, 1024.0F}) {
    const auto model = on_device(c, scale).make();
    const std::vector<float> weights(static_cast<size_t>(model->table().total), 0.0F);
    const Result result = train(*model, weights, inputs);
    EXPECT_NEAR(result.gradients.back(), scale == 1.0F ? 0.0F : 1e-3F, 1e-4F) << scale;
  }
}

std::vector<BackendCase> devices(bool is_fp16) {
  std::vector<BackendCase> cases = all_backends();
  std::erase_if(cases, [&](const BackendCase& backend) {
    return !backend.needs_device || (backend.precision == ops::Precision::kFp16) != is_fp16;
  });
  return cases;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LossScale);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LossScaleOfFp16);
INSTANTIATE_TEST_SUITE_P(Backends, LossScale, testing::ValuesIn(devices(false)), case_name);
INSTANTIATE_TEST_SUITE_P(Backends, LossScaleOfFp16, testing::ValuesIn(devices(true)), case_name);

}  // namespace
}  // namespace pushpull
