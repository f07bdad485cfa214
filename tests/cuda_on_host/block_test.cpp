// Tests that faults of a kernel are reported and that correct kernels run.
#include "tests/cuda_on_host/block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/cuda_on_host/runtime.h"
#include "tests/cuda_on_host/wrong_kernels.h"

namespace cuda_on_host {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kFloats = 64;

class Block : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    restart(static_cast<uint64_t>(GetParam()));
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    void* first = nullptr;
    ASSERT_EQ(cudaMalloc(&first, kBytes), cudaSuccess);
    values_ = static_cast<float*>(first);
    std::iota(host_.begin(), host_.end(), 1.0F);
    ASSERT_EQ(cudaMemcpy(values_, host_.data(), kBytes, cudaMemcpyHostToDevice), cudaSuccess);
  }
  void TearDown() override {
    restart(0);
    cudaStreamDestroy(stream_);
    cudaFree(values_);
  }

  std::vector<float> after(Wrong what, int64_t at = 0) {
    launch(what, values_, at, stream_);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess) << latest_fault();
    std::vector<float> got(kFloats);
    EXPECT_EQ(cudaMemcpy(got.data(), values_, kBytes, cudaMemcpyDeviceToHost), cudaSuccess);
    return got;
  }
  std::string fault_of(Wrong what, cudaError_t expected, int64_t at = 0) {
    launch(what, values_, at, stream_);
    EXPECT_EQ(cudaStreamSynchronize(stream_), expected);
    EXPECT_EQ(cudaGetLastError(), expected);
    EXPECT_EQ(cudaStreamSynchronize(stream_), expected) << "the error is sticky";
    return latest_fault();
  }

  static constexpr size_t kBytes = kFloats * sizeof(float);
  std::vector<float> host_ = std::vector<float>(kFloats);
  float* values_ = nullptr;
  cudaStream_t stream_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(, Block, testing::Range(0, 8));

TEST_P(Block, ThreadsSeeOthersWritesAfterABarrier) {
  std::reverse(host_.begin(), host_.end());
  EXPECT_EQ(after(Wrong::kRightReverse), host_);
}

TEST_P(Block, AMissingBarrierLeavesNaN) {
  const std::vector<float> got = after(Wrong::kNoBarrier);
  EXPECT_TRUE(std::any_of(got.begin(), got.end(), [](float x) { return std::isnan(x); }));
}

TEST_P(Block, ABarrierThatSomeThreadsMissIsNamed) {
  EXPECT_THAT(fault_of(Wrong::kHalfWaits, cudaErrorLaunchFailure),
              AllOf(HasSubstr("half_waits (tests/cuda_on_host/wrong_kernels.cu:"),
                    HasSubstr("waits at the barrier of "), HasSubstr("wrong_kernels.cu:21"),
                    HasSubstr("32 of 64 threads have ended")));
}

TEST_P(Block, WaitingAtDifferentBarriersIsAFault) {
  EXPECT_THAT(fault_of(Wrong::kTwoBarriers, cudaErrorLaunchFailure),
              AllOf(HasSubstr("wrong_kernels.cu:27"), HasSubstr("wrong_kernels.cu:29")));
}

TEST_P(Block, AShuffleOfHalfAWarpIsNamed) {
  EXPECT_THAT(fault_of(Wrong::kHalfShuffles, cudaErrorLaunchFailure),
              HasSubstr("waits at the shuffle of "));
}

TEST_P(Block, AWarpSumsByShuffles) {
  const std::vector<float> got = after(Wrong::kSumOfWarp);
  for (int t = 0; t < kFloats; ++t) {
    EXPECT_EQ(got[static_cast<size_t>(t)], t < 32 ? 528.0F : 1552.0F) << t;
  }
}

TEST_P(Block, SharedMemoryIsNaNForEachBlock) {
  for (const float x : after(Wrong::kReadShared)) EXPECT_TRUE(std::isnan(x));
}

TEST_P(Block, TooMuchSharedMemoryIsRefused) {
  EXPECT_THAT(fault_of(Wrong::kMuchShared, cudaErrorLaunchFailure),
              HasSubstr("more shared memory than a block may have"));
}

TEST_P(Block, AllBlocksRun) {
  ASSERT_EQ(cudaMemset(values_, 0, kBytes), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
  int flags = 0;
  const float first = after(Wrong::kCount)[0];
  std::memcpy(&flags, &first, sizeof flags);
  EXPECT_EQ(flags, 0xff);
}

TEST_P(Block, InvalidLaunchesAreRefusedAtOnce) {
  for (const Wrong what : {Wrong::kNoBlocks, Wrong::kManyThreads}) {
    launch(what, values_, 0, stream_);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
}

// The write hits the 44 bytes between the end of a smaller allocation and its guard.
TEST_P(Block, AWriteBeforeTheGuardIsReportedWhenTheKernelEnds) {
  void* small = nullptr;
  ASSERT_EQ(cudaMalloc(&small, 212), cudaSuccess);
  launch(Wrong::kWriteAt, static_cast<float*>(small), 53, stream_);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorIllegalAddress);
  EXPECT_THAT(latest_fault(), HasSubstr("a write behind an allocation of 212 bytes"));
}
TEST_P(Block, AWriteInFrontOfAnAllocationIsReported) {
  EXPECT_THAT(fault_of(Wrong::kWriteAt, cudaErrorIllegalAddress, -1),
              HasSubstr("a write in front of an allocation of 256 bytes"));
}

using BlockDeathTest = Block;
INSTANTIATE_TEST_SUITE_P(, BlockDeathTest, testing::Values(1));

TEST_P(BlockDeathTest, AnAccessBehindTheGuardEndsTheProcess) {
  EXPECT_DEATH(after(Wrong::kWriteAt, kFloats),
               "write_at .*touches .* 256 bytes behind the begin of an allocation of 256");
}
TEST_P(BlockDeathTest, AnAccessToFreedMemoryEndsTheProcess) {
  void* freed = nullptr;
  ASSERT_EQ(cudaMalloc(&freed, 256), cudaSuccess);
  ASSERT_EQ(cudaFree(freed), cudaSuccess);
  EXPECT_DEATH(
      {
        launch(Wrong::kWriteAt, static_cast<float*>(freed), 0, stream_);
        cudaStreamSynchronize(stream_);
      },
      "write_at .*touches ");
}
TEST_P(BlockDeathTest, AnUnalignedAccessEndsTheProcess) {
  EXPECT_DEATH(after(Wrong::kWritePairAt, 1), "write_pair_at .*is not aligned");
  EXPECT_EQ(after(Wrong::kWritePairAt, 2)[3], 2.0F);
}
TEST_P(BlockDeathTest, AccessBeyondTheLaunchsSharedMemoryEndsTheProcess) {
  after(Wrong::kWriteLaunchMemory, 15);
  EXPECT_DEATH(after(Wrong::kWriteLaunchMemory, 16), "write_launch_memory .*touches ");
}
TEST_P(BlockDeathTest, TheHostMayNotTouchMemoryOfTheDevice) {
  EXPECT_DEATH(static_cast<volatile float*>(values_)[0] = 1.0F, "the host touches ");
}

}  // namespace
}  // namespace cuda_on_host
