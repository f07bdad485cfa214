// Checks that the installed library has every function that is looked up by name. Needs no device.
#include "common/device/cuda_libraries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "common/base/error.h"
#include "common/device/shared_library.h"
#include "tests/common/thrown.h"
#include "tests/device/need_device.h"

namespace pushpull::device {
namespace {

using ::testing::HasSubstr;

TEST(CudaLibraries, CublasLtHasEveryFunction) {
  const SharedLibrary library("libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR));
  if (!library.is_open() && !is_device_required()) GTEST_SKIP() << library.failures();
  const CublasLt& lt = cublas_lt();
#define PUSHPULL_IS_THERE(name) EXPECT_NE(lt.name, nullptr) << #name;
  PUSHPULL_CUBLASLT(PUSHPULL_IS_THERE)
#undef PUSHPULL_IS_THERE
  EXPECT_EQ(lt.cublasLtGetVersion() / 10000, size_t{CUBLAS_VER_MAJOR});
  EXPECT_THAT(cublas_lt_path(), HasSubstr("libcublasLt.so"));
  const std::string text = thrown(
      ErrorCode::kDevice, [&] { check(CUBLAS_STATUS_INVALID_VALUE, "cublasLtMatmul(a, b)"); });
  EXPECT_THAT(text, HasSubstr("[cublasLt] cublasLtMatmul at tests/device/cuda_libraries_"));
  EXPECT_THAT(text, HasSubstr(": an unsupported value or parameter"));
}

}  // namespace
}  // namespace pushpull::device
