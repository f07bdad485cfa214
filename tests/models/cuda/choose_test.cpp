// The choice among a library's algorithms on a device: by the library's order, or by time.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>

#include "common/device/cuda_check.h"
#include "models/ops/cuda/shared.h"
#include "tests/device/need_device.h"

namespace pushpull::choose_test {
namespace {

using Runs = std::array<int, 3>;

// Parameter: whether time decides.
class CudaChoose : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    PP_NEED_DEVICE();
    shared_.device = device::open({device::DeviceName::kCuda, 0});
    device::use_device(shared_.index);
    stream_ = shared_.device->stream();
    shared_.stream = device::native_stream(*stream_);
    shared_.measure = GetParam();
    memory_ = shared_.device->allocate(kBytes);
  }
  void fill(size_t bytes) { PP_CUDA(cudaMemsetAsync(memory_.data(), 0, bytes, shared_.stream)); }

  static constexpr size_t kBytes = size_t{1} << 20;
  ops::cuda::Shared shared_;
  std::unique_ptr<device::Stream> stream_;
  device::Memory memory_;
};

// The library's best candidate does not run, the next one does 32 times the work of the last.
TEST_P(CudaChoose, TakesTheFirstThatRunsOrTheFastest) {
  Runs runs{};
  const int chosen = ops::cuda::choose(shared_, 3, [&](int i) {
    ++runs.at(static_cast<size_t>(i));
    if (i == 1) {
      for (int fills = 0; fills < 32; ++fills) fill(kBytes);
    } else if (i == 2) {
      fill(1);
    }
    return i != 0;
  });
  PP_CUDA(cudaStreamSynchronize(shared_.stream));
  if (GetParam()) {
    EXPECT_EQ(chosen, 2);
    EXPECT_EQ(runs[1], runs[2]) << "both are timed alike";
  } else {
    EXPECT_EQ(chosen, 1);
    EXPECT_EQ(runs, (Runs{1, 1, 0})) << "nothing is timed";
  }
}

TEST_P(CudaChoose, FindsNoneIfNoneRuns) {
  EXPECT_EQ(ops::cuda::choose(shared_, 3, [](int) { return false; }), -1);
  EXPECT_EQ(ops::cuda::choose(shared_, 0, [](int) { return true; }), -1);
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaChoose, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& tested) {
                           return std::string(tested.param ? "timed" : "library");
                         });

}  // namespace
}  // namespace pushpull::choose_test
