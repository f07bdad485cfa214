// Tests of linear layers and convolutions on CUDA beyond tests/models/cuda/operations_test.cpp:
// both algorithms of a convolution, choices of another backend, and bits that do not depend on the
// address of parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "common/base/error.h"
#include "models/ops/choices.h"
#include "models/ops/convolution.h"
#include "models/ops/linear.h"
#include "tests/common/thrown.h"
#include "tests/device/need_device.h"
#include "tests/models/cuda/both_backends.h"
#include "tests/models/reference.h"

namespace pushpull::cuda_choices_test {
namespace {

using ops::Precision;
using Floats = std::vector<float>;

constexpr ops::LinearShape kLinear{5, 24, 16, true};
constexpr ops::ConvolutionShape kConvolution{
    .input = {3, 4, 6, 5}, .outputs = 8, .kernel = 3, .padding = 1};
const std::string convolution_key = "convolution/3x4x6x5/o8k3p1";

Floats numbers(int64_t count, double seed) {
  Floats v(static_cast<size_t>(count));
  for (size_t i = 0; i < v.size(); ++i) {
    v[i] = static_cast<float>(std::sin(seed + 1.7 * static_cast<double>(i)));
  }
  return v;
}

reference::Values wide(const Floats& v) { return {v.begin(), v.end()}; }

std::shared_ptr<ops::Backend> make(Precision precision, bool measure = false) {
  ops::BackendOptions options;
  options.device = {device::DeviceName::kCuda, 0};
  options.precision = precision;
  options.measure = measure;
  return ops::make_backend(options);
}

struct Results {
  Floats y, dw, db, dx;
  bool operator==(const Results&) const = default;
};

// Compares sums of `terms` products of order one. Stored values are rounded by `unit`, mostly in
// different directions, so the root of the terms counts. The order of f32 sums may cost another
// error.
void expect_near(const Floats& seen, const reference::Values& expected, double terms, double unit) {
  ASSERT_EQ(seen.size(), expected.size());
  double largest = 1.0;
  for (const double value : expected) largest = std::max(largest, std::fabs(value));
  const double tolerance = (4.0 * std::sqrt(terms) * unit + 0x1p-23 * terms) * largest;
  for (size_t i = 0; i < seen.size(); ++i) ASSERT_NEAR(seen[i], expected[i], tolerance) << i;
}

class CudaChoices : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override { PP_NEED_DEVICE(); }
  // Returns the largest error of a rounding, half a unit.
  static double unit() {
    switch (GetParam()) {
      case Precision::kFp32:
        return std::ldexp(1.0, -24);
      case Precision::kBf16:
        return std::ldexp(1.0, -9);
      default:  // tf32, fp16: 10 fraction bits
        return std::ldexp(1.0, -11);
    }
  }

  // Runs forward and backward of a layer with a bias.
  //   aligned: its parameters and their gradients, or they are aligned to a float only.
  static Results run(const std::shared_ptr<ops::Backend>& backend, const ops::Spec& spec,
                     const ops::ValueType& input, bool aligned) {
    const std::vector<ops::Shape> params = spec.params();
    const test::Outcome out =
        test::Side(backend, GetParam())
            .run({.spec = spec,
                  .inputs = {input},
                  .x = {numbers(input.shape.size(), 1)},
                  .w = {numbers(params[0].size(), 2), numbers(params[1].size(), 3)},
                  .dy = numbers(spec.output().shape.size(), 4),
                  .aligned_params = aligned});
    return {out.y, out.dw[0], out.dw[1], out.dx[0]};
  }
  static Results run_linear(const std::shared_ptr<ops::Backend>& backend, bool aligned = true) {
    const ops::ValueType input = ops::activation({kLinear.samples, kLinear.inputs});
    return run(backend, ops::LinearSpec(kLinear), input, aligned);
  }
  static Results run_convolution(const std::shared_ptr<ops::Backend>& backend,
                                 const ops::ConvolutionShape& shape = kConvolution,
                                 bool aligned = true) {
    return run(backend, ops::ConvolutionSpec(shape), ops::native_image(shape.input), aligned);
  }
};

TEST_P(CudaChoices, AddressOfParametersChangesNoBit) {
  const auto backend = make(GetParam());
  EXPECT_EQ(run_linear(backend, true), run_linear(backend, false));
  EXPECT_EQ(run_convolution(backend, kConvolution, true),
            run_convolution(backend, kConvolution, false));
}

TEST_P(CudaChoices, UnrolledConvolutionEqualsItsReference) {
  const auto backend = make(GetParam());
  backend->choose(convolution_key + " im2col\n");
  const Results seen = run_convolution(backend, kConvolution, false);
  EXPECT_THAT(backend->choices(), testing::HasSubstr(convolution_key + " im2col\n"));
  const auto x = wide(numbers(kConvolution.input.size(), 1));
  const auto w = wide(numbers(8 * 4 * 3 * 3, 2));
  const auto b = wide(numbers(8, 3));
  const auto dy = wide(numbers(kConvolution.output().size(), 4));
  const auto g = reference::convolution_backward(kConvolution, x, w, dy);
  expect_near(seen.y, reference::convolution(kConvolution, x, w, b), 36, unit());
  expect_near(seen.dw, g.dw, 90, unit());
  expect_near(seen.db, g.db, 90, unit());
  expect_near(seen.dx, g.dx, 72, unit());
}

// At most five samples are unrolled at a time: seven take two chunks, five and two.
TEST_P(CudaChoices, UnrolledConvolutionIsSplitIntoChunksOfSamples) {
  const ops::ConvolutionShape shape{
      .input = {7, 32, 64, 64}, .outputs = 2, .kernel = 5, .padding = 2};
  const auto backend = make(GetParam());
  backend->choose("convolution/7x32x64x64/o2k5p2 im2col\n");
  const Results seen = run_convolution(backend, shape);
  EXPECT_THAT(backend->choices(), testing::HasSubstr("matmul/20480x2x800nt/"));
  EXPECT_THAT(backend->choices(), testing::HasSubstr("matmul/8192x2x800nt/"));
  const auto x = wide(numbers(shape.input.size(), 1));
  const auto w = wide(numbers(2 * 32 * 5 * 5, 2));
  const auto b = wide(numbers(2, 3));
  const auto dy = wide(numbers(shape.output().size(), 4));
  const auto g = reference::convolution_backward(shape, x, w, dy);
  expect_near(seen.y, reference::convolution(shape, x, w, b), 800, unit());
  expect_near(seen.dw, g.dw, 7 * 64 * 64, unit());
  expect_near(seen.dx, g.dx, 50, unit());
}

// If no algorithm has an epilogue for a shape, our kernel adds the bias.
TEST_P(CudaChoices, BiasAndReluMayFollowTheProduct) {
  const auto first = make(GetParam());
  const Results fused = run_linear(first);
  std::string text = first->choices();
  const size_t at = text.find("fused ");
  if (at != std::string::npos) text.replace(at, 6, "apart ");
  const auto second = make(GetParam());
  second->choose(text);
  try {
    const Results apart = run_linear(second);
    expect_near(apart.y, wide(fused.y), 24, unit());
    expect_near(apart.dw, wide(fused.dw), 5, unit());
  } catch (const Error& error) {
    // this algorithm supports only products with an epilogue
    EXPECT_EQ(error.code(), ErrorCode::kProtocol);
    EXPECT_THAT(error.what(), testing::HasSubstr("is refused by cuBLASLt"));
  }
}

// Nothing tells the second backend what the first one chose.
TEST_P(CudaChoices, OrderOfTheLibraryGivesEachBackendTheSameBits) {
  const auto first = make(GetParam());
  const auto second = make(GetParam());
  EXPECT_EQ(run_linear(second), run_linear(first));
  EXPECT_EQ(run_convolution(second), run_convolution(first));
  EXPECT_EQ(second->choices(), first->choices());
}

TEST_P(CudaChoices, AnotherBackendUsesThemAndComputesTheSameBits) {
  const auto first = make(GetParam(), true);
  const Results linear = run_linear(first);
  const Results convolution = run_convolution(first);
  const std::string text = first->choices();
  EXPECT_THAT(text, testing::HasSubstr("matmul/5x16x24nt/"));
  EXPECT_THAT(text, testing::HasSubstr(convolution_key + " "));
  EXPECT_LE(text.size(), ops::Choices::kMaxBytes);

  const auto second = make(GetParam(), true);
  second->choose(text);
  EXPECT_EQ(run_linear(second), linear);
  EXPECT_EQ(run_convolution(second), convolution);
  EXPECT_EQ(second->choices(), text);
}

TEST_P(CudaChoices, InvalidAlgorithmsAreRefused) {
  const auto backend = make(GetParam());
  run_linear(backend);
  const std::string text = backend->choices();
  const std::string key = text.substr(0, text.find(' '));
  const auto refused = [&](const std::string& line, auto plan) {
    backend->choose(line + "\n");
    EXPECT_NE(thrown(ErrorCode::kProtocol, [&] { plan(); }), "");
  };
  const std::vector<std::string> values = {
      "x", "fused", "apart 00", "apart " + std::string(128, 'g'), "apart " + std::string(128, 'f')};
  for (const std::string& value : values) {
    refused(key + " " + value, [&] { backend->plan(ops::LinearSpec(kLinear)); });
  }
  for (const char* value : {"x", "cudnn", "cudnn 1/1", "cudnn 99/0 99/0 99/0"}) {
    refused(convolution_key + " " + value,
            [&] { backend->plan(ops::ConvolutionSpec(kConvolution)); });
  }
}

TEST(CudaBackend, EnvironmentThatChangesResultsIsRefused) {
  for (const char* name : {"NVIDIA_TF32_OVERRIDE", "CUBLAS_EMULATE_SINGLE_PRECISION"}) {
    ASSERT_EQ(setenv(name, "1", 1), 0);
    EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { make(Precision::kFp32); }),
                testing::HasSubstr(std::string(name) + "=1 is set"));
    unsetenv(name);
  }
}

std::string name_of(const testing::TestParamInfo<Precision>& tested) {
  const std::vector<std::string> names = {"Fp32", "Tf32", "Bf16", "Fp16"};
  return names.at(static_cast<size_t>(tested.param));
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaChoices,
                         testing::Values(Precision::kFp32, Precision::kTf32, Precision::kBf16,
                                         Precision::kFp16),
                         name_of);

}  // namespace
}  // namespace pushpull::cuda_choices_test
