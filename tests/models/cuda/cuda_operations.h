// The fixture of tests that compare operations on CUDA with those of the CPU, in each precision.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "tests/common/thrown.h"
#include "tests/device/need_device.h"
#include "tests/models/cuda/both_backends.h"
#include "tests/models/ops/operation_run.h"

namespace pushpull::test {

using ops::Precision;

constexpr double kExact = 0.0;

class OnBothBackends : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    PP_NEED_DEVICE();
    cpu_.emplace(std::shared_ptr(ops::make_cpu_backend(1)), Precision::kFp32);
    cuda_.emplace(std::shared_ptr(ops::make_backend({.device = {device::DeviceName::kCuda, 0},
                                                     .precision = GetParam(),
                                                     .loss_scale = kLossScale})),
                  GetParam());
  }

  // Returns different numbers in -1..1 that activations represent exactly.
  std::vector<float> exact(int64_t count, int64_t seed, float times = 1.0F) const {
    std::vector<float> out = numbers(count, seed);
    for (float& value : out) value *= times;
    return cuda_->rounded(out);
  }
  bool is_short() const { return GetParam() == Precision::kBf16 || GetParam() == Precision::kFp16; }

  // Returns the bits of an activation, or of a product's factors.
  int bits(bool of_factors) const {
    if (GetParam() == Precision::kBf16) return 8;
    if (GetParam() == Precision::kFp16) return 11;
    return of_factors && GetParam() == Precision::kTf32 ? 11 : 24;
  }

  // Compares relative to the largest value, since a sum may cancel. Activations that are stored
  // shorter are off by half a unit in their last place; `roundings` counts them.
  void expect_close(const std::string& what, const std::vector<float>& got,
                    const std::vector<float>& want, double tolerance, double roundings) const {
    ASSERT_EQ(got.size(), want.size()) << what;
    double largest = 1e-3;
    for (const float value : want) {
      if (std::isfinite(value)) largest = std::max(largest, std::fabs(static_cast<double>(value)));
    }
    const double allowed =
        largest * (tolerance + (is_short() ? roundings * std::ldexp(1.0, -bits(false)) : 0.0));
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(want[i])) {  // not written
        ASSERT_TRUE(std::isnan(got[i])) << what << "[" << i << "]";
        continue;
      }
      ASSERT_NEAR(got[i], want[i], allowed) << what << "[" << i << "]";
    }
  }

  // Compares both backends, with gradients in place and not, at aligned addresses and not.
  //   tolerance: of f32 arithmetic, relative to the largest value of a tensor.
  //   roundings: of activations from the inputs to any result.
  void compare(Comparison c, double tolerance, double roundings = 1.0,
               const std::vector<size_t>& shifts = {0, 1}) const {
    const Outcome want = cpu_->run(c);
    for (const size_t shift : shifts) {
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE("shift " + std::to_string(shift) + (in_place ? ", in place" : ""));
        c.shift = shift;
        c.in_place = in_place;
        const Outcome got = cuda_->run(c);
        expect_close("y", got.y, want.y, tolerance, c.is_head ? 0.0 : roundings);
        EXPECT_EQ(got.predictions, want.predictions);
        ASSERT_EQ(got.dx.size(), want.dx.size());
        for (size_t i = 0; i < want.dx.size(); ++i) {
          std::vector<float> dx = want.dx[i];
          for (float& value : dx) value *= c.is_head ? kLossScale : 1.0F;
          expect_close("dx", got.dx[i], dx, tolerance, roundings);
        }
        ASSERT_EQ(got.dw.size(), want.dw.size());
        for (size_t i = 0; i < want.dw.size(); ++i) {
          std::vector<float> dw = want.dw[i];
          for (float& value : dw) value /= kLossScale;
          expect_close("dw", got.dw[i], dw, tolerance, roundings);
        }
      }
    }
  }

  // Expects that CUDA refuses to plan it, in one line that contains `words`.
  void expect_refusal(const ops::Spec& spec, const std::string& words) const {
    const auto backend =
        ops::make_backend({.device = {device::DeviceName::kCuda, 0}, .precision = GetParam()});
    const std::string text = thrown(ErrorCode::kUsage, [&] { backend->plan(spec); });
    EXPECT_THAT(text, testing::HasSubstr(words));
  }

  std::optional<Side> cpu_;
  std::optional<Side> cuda_;
};

inline constexpr Precision kPrecisions[] = {Precision::kFp32, Precision::kTf32, Precision::kBf16,
                                            Precision::kFp16};
inline std::string precision_name(const testing::TestParamInfo<Precision>& info) {
  return to_string(info.param);
}

}  // namespace pushpull::test
