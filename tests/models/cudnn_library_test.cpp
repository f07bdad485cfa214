// Each function that is loaded by name exists in the installed cuDNN. This finds a wrong name
// without a device.
#include "models/ops/cuda/cudnn_library.h"

#include <gtest/gtest.h>

#include <string>

#include "common/device/shared_library.h"

namespace pushpull::ops::cuda {
namespace {

TEST(CudnnLibrary, HasEachFunction) {
  const device::SharedLibrary library("libcudnn.so." + std::to_string(CUDNN_MAJOR));
  if (!library.is_open()) GTEST_SKIP() << library.failures();
#define PUSHPULL_IS_THERE(name) EXPECT_NE(library.find(#name), nullptr) << #name;
  PUSHPULL_CUDNN(PUSHPULL_IS_THERE)
#undef PUSHPULL_IS_THERE
  ASSERT_NE(cudnn(), nullptr);
  EXPECT_EQ(cudnn()->cudnnGetVersion() / 10'000, size_t{CUDNN_MAJOR});
}

}  // namespace
}  // namespace pushpull::ops::cuda
