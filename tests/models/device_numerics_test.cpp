#include "models/ops/device_numerics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.h"

namespace pushpull {
namespace {

using ops::Precision;
using testing::HasSubstr;

TEST(DeviceNumerics, NamesAllThatBitsDependOn) {
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

TEST(Precision, IsReadAsItIsWritten) {
  for (const char* name : {"fp32", "tf32", "bf16", "fp16"}) {
    EXPECT_STREQ(to_string(ops::parse_precision(name)), name);
  }
  for (const char* text : {"", "fp64", "BF16", "bf16 "}) {
    EXPECT_THROW(ops::parse_precision(text), Error) << text;
  }
}

TEST(Precision, OfTheCpuIsFp32Only) {
  for (const Precision precision : {Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
    try {
      ops::make_backend({.device = {}, .precision = precision});
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      EXPECT_THAT(error.what(), HasSubstr(to_string(precision)));
      EXPECT_THAT(error.what(), HasSubstr("--device cuda"));
    }
  }
  EXPECT_EQ(ops::make_backend({})->device(), nullptr);
}

TEST(Backend, OfADeviceThatCannotBeUsedSaysWhy) {
  if (device::count() > 0) GTEST_SKIP() << "there is one";
  try {
    ops::make_backend({.device = {device::DeviceName::kCuda, 3}});
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice);
    EXPECT_THAT(error.what(), HasSubstr("cuda:3"));
    EXPECT_THAT(error.what(), HasSubstr("--device cpu"));
  }
}

}  // namespace
}  // namespace pushpull
