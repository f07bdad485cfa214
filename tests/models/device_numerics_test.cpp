#include "models/ops/device_numerics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>
#include <tuple>

#include "common/base/error.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using ops::Precision;
using testing::HasSubstr;

TEST(DeviceNumerics, NamesEverythingThatBitsDependOn) {
  ops::DeviceNumerics numerics{.device = "NVIDIA H200",
                               .major = 9,
                               .minor = 0,
                               .runtime = 13000,
                               .cublas_lt = 130100,
                               .cudnn = "9.19.0",
                               .precision = Precision::kTf32,
                               .loss_scale = 1.0F};
  EXPECT_EQ(to_string(numerics),
            "cuda NVIDIA H200 sm_90 runtime 13.0 cuBLASLt 13.1.0 cuDNN 9.19.0 tf32 loss-scale 1");
  numerics.runtime = 12080;
  numerics.cudnn = "";
  numerics.precision = Precision::kFp16;
  numerics.loss_scale = 1024.0F;
  EXPECT_EQ(to_string(numerics),
            "cuda NVIDIA H200 sm_90 runtime 12.8 cuBLASLt 13.1.0 no cuDNN fp16 loss-scale 1024");
}

TEST(DeviceNumerics, NamesTheDriverIfItCompilesKernels) {
  const ops::DeviceNumerics numerics{.device = "NVIDIA B200",
                                     .major = 10,
                                     .minor = 0,
                                     .ptx_driver = 13010,
                                     .runtime = 13000,
                                     .cublas_lt = 130100,
                                     .cudnn = ""};
  EXPECT_THAT(to_string(numerics),
              HasSubstr("NVIDIA B200 sm_100 ptx by driver 13.1 runtime 13.0 cuBLASLt"));
}

TEST(DeviceNumerics, MachineCodeFitsOneMajorVersionAndNoOlderMinor) {
  constexpr std::string_view kOurs = "80-real, 90-real, 90-virtual";
  for (const auto& [architectures, major, minor, has] :
       {std::tuple{kOurs, 8, 0, true},
        {kOurs, 8, 6, true},
        {kOurs, 9, 0, true},
        {kOurs, 7, 5, false},
        {kOurs, 10, 0, false},
        {kOurs, 12, 1, false},
        {std::string_view("86"), 8, 6, true},
        {std::string_view("86"), 8, 0, false},
        {std::string_view("90-virtual"), 9, 0, false},
        {std::string_view("90a-real"), 9, 0, true},
        {std::string_view("120a-real"), 12, 1, false},
        {std::string_view("100f-real;80"), 10, 3, true},
        {std::string_view("native"), 10, 3, true},
        {std::string_view(""), 9, 0, false}}) {
    EXPECT_EQ(ops::has_machine_code(architectures, major, minor), has)
        << architectures << " on " << major << "." << minor;
  }
}

TEST(Precision, ParseReadsItsText) {
  for (const char* name : {"fp32", "tf32", "bf16", "fp16"}) {
    EXPECT_STREQ(to_string(ops::parse_precision(name)), name);
  }
  for (const char* text : {"", "fp64", "BF16", "bf16 "}) {
    EXPECT_THROW(ops::parse_precision(text), Error) << text;
  }
}

TEST(Precision, CpuSupportsFp32AndWhereItsProcessorDoesBf16) {
  for (const Precision precision : {Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
    if (precision == Precision::kBf16 && ops::cpu_has_bf16()) {
      const auto backend = ops::make_backend({.device = {}, .precision = precision});
      EXPECT_EQ(backend->activation_bytes(), 2U);
      EXPECT_EQ(backend->numerics(), ops::make_backend({})->numerics() + " bf16");
      continue;
    }
    const std::string text = thrown(
        ErrorCode::kUsage, [&] { ops::make_backend({.device = {}, .precision = precision}); });
    EXPECT_THAT(text, HasSubstr(to_string(precision)));
    EXPECT_THAT(text, HasSubstr("--device cuda"));
  }
  EXPECT_EQ(ops::make_backend({})->device(), nullptr);
}

TEST(Backend, UnusableDeviceIsRefusedWithTheReason) {
  if (device::count() > 0) GTEST_SKIP() << "there is a device";
  const std::string text = thrown(ErrorCode::kDevice, [&] {
    ops::make_backend({.device = {device::DeviceName::kCuda, 3}});
  });
  EXPECT_THAT(text, HasSubstr("cuda:3"));
  EXPECT_THAT(text, HasSubstr("--device cpu"));
}

}  // namespace
}  // namespace pushpull
