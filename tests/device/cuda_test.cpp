// Tests of CUDA only: opening a device, and its errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "common/base/error.h"
#include "common/device/cuda_check.h"
#include "common/device/device.h"
#include "tests/common/thrown.h"
#include "tests/device/need_device.h"

namespace pushpull::device {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Cuda, WithoutADeviceTheErrorNamesCauseAndRemedy) {
  std::string why;
  if (count(&why) > 0) GTEST_SKIP() << "there is a device";
  EXPECT_FALSE(is_device_required()) << why;
  EXPECT_THAT(why, HasSubstr("NVIDIA driver"));
  EXPECT_THAT(thrown(ErrorCode::kDevice,
                     [] {
                       open({DeviceName::kCuda, 2});
                     }),
              AllOf(StartsWith("[device] cuda:2 cannot be used: "), HasSubstr(why),
                    EndsWith("--device cpu computes without one")));
}

TEST(Cuda, AFailedCallIsNamedWithFileLineAndDevice) {
  const auto call = [](int /*argument*/) { return cudaErrorInvalidValue; };
  const int before = __LINE__;
  const std::string text = thrown(ErrorCode::kDevice, [&] { PP_CUDA(call(7)); });
  EXPECT_THAT(text, AllOf(StartsWith("[cuda] call at tests/device/cuda_test.cpp:" +
                                     std::to_string(before + 1) + " on cuda:0"),
                          EndsWith(": invalid argument"), Not(HasSubstr("\n"))));
  EXPECT_THAT(
      thrown(ErrorCode::kDevice, [] { check(cudaErrorMemoryAllocation, "cudaMalloc(&p, 4)"); }),
      AllOf(StartsWith("[cuda] cudaMalloc at "), EndsWith("out of memory")));
}

int destroyed = 0;
int status_of_end = 0;
int destroy(int* /*handle*/) {
  ++destroyed;
  return status_of_end;
}

TEST(Cuda, AHandleIsDestroyedExactlyOnce) {
  using Handle = UniqueHandle<int*, destroy>;
  int value = 0;
  destroyed = 0;
  {
    Handle empty;
    Handle first(&value);
    Handle second(std::move(first));
    EXPECT_EQ(second.get(), &value);
    EXPECT_EQ(first.get(), nullptr);  // NOLINT: a moved-from handle is empty
    empty = std::move(second);
    EXPECT_EQ(destroyed, 0);
    *empty.put() = &value;
    EXPECT_EQ(destroyed, 1);
  }
  EXPECT_EQ(destroyed, 2);
  status_of_end = 999;
  testing::internal::CaptureStderr();
  {
    const Handle failing(&value);
    const Handle alike(&value);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("failed with 999"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  status_of_end = cudaErrorCudartUnloading;
  testing::internal::CaptureStderr();
  { const Handle late(&value); }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

class OnDevice : public testing::Test {
 protected:
  void SetUp() override { PP_NEED_DEVICE(); }
};

TEST_F(OnDevice, CudaRefusesAnAbsentDevice) {
  EXPECT_THAT(thrown(ErrorCode::kDevice,
                     [] {
                       open({DeviceName::kCuda, 63});
                     }),
              AllOf(StartsWith("[device] cuda:63 cannot be used: this machine has cuda:0 ("),
                    Not(HasSubstr("\n"))));
}

TEST_F(OnDevice, CudaGivesItsNativeHandles) {
  const auto device = open({DeviceName::kCuda, 0});
  EXPECT_EQ(native_index(*device), 0);
  EXPECT_NE(native_stream(*device->stream()), nullptr);
}

// The caller then makes the same calls without a graph, so an allocation must not end the worker.
TEST_F(OnDevice, CudaHasNoGraphOfACallThatCannotBeCaptured) {
  const auto device = open({DeviceName::kCuda, 0});
  const auto stream = device->stream();
  const Memory memory = device->allocate(sizeof(float));
  const auto add = [&] { stream->add(memory.floats(), memory.floats(), 1); };
  EXPECT_EQ(stream->capture([&] {
    add();
    device->allocate(sizeof(float));
  }),
            nullptr);
  EXPECT_NE(stream->capture(add), nullptr);
  add();
  stream->synchronize(1000);
}

TEST_F(OnDevice, CudaGivesUpAtTheDeadline) {
  const auto device = open({DeviceName::kCuda, 0});
  const auto stream = device->stream();
  const auto event = device->event();
  constexpr size_t kFloats = size_t{64} << 20;
  const Memory memory = device->allocate(kFloats * sizeof(float));
  for (int i = 0; i < 200; ++i) stream->add(memory.floats(), memory.floats(), kFloats);
  stream->record(*event);
  EXPECT_THAT(thrown(ErrorCode::kDevice, [&] { event->wait(0); }),
              HasSubstr("has not finished its work within 0 ms"));
  EXPECT_FALSE(event->done());
  event->wait(60'000);
  EXPECT_TRUE(event->done());
}

}  // namespace
}  // namespace pushpull::device
