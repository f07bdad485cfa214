// Tests the stand-in of CUDA's runtime: it runs work late, in no order but the required one, and is
// as strict as the documentation of the real one.
#include "tests/cuda_on_host/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda_on_host/wrong_kernels.h"

extern "C" int cuda_on_host_enqueue(cudaStream_t stream, void (*work)(void*), void* argument,
                                    void (*destroy)(void*));

namespace cuda_on_host {
namespace {

constexpr size_t kPage = 4096;

class RuntimeOnHost : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    restart(static_cast<uint64_t>(GetParam()));
    stream_ = stream();
    other_ = stream();
    device_ = memory(kPage);
    host_ = static_cast<char*>(std::aligned_alloc(kPage, kPage));
    std::memset(host_, 0, kPage);
  }
  void TearDown() override {
    restart(0);
    cudaStreamDestroy(stream_);
    cudaStreamDestroy(other_);
    cudaFree(device_);
    std::free(host_);
  }
  static cudaStream_t stream(unsigned flags = cudaStreamNonBlocking) {
    cudaStream_t made = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&made, flags), cudaSuccess);
    return made;
  }
  static cudaEvent_t event() {
    cudaEvent_t made = nullptr;
    EXPECT_EQ(cudaEventCreate(&made), cudaSuccess);
    return made;
  }
  static char* memory(size_t bytes) {
    void* made = nullptr;
    EXPECT_EQ(cudaMalloc(&made, bytes), cudaSuccess);
    return static_cast<char*>(made);
  }
  char read() const {
    char first = 0;
    EXPECT_EQ(cudaMemcpyAsync(&first, device_, 1, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
    return first;
  }
  // Enqueues a step without effect, so that the stream has work.
  static void enqueue_nothing(cudaStream_t stream) {
    EXPECT_EQ(cuda_on_host_enqueue(
                  stream, [](void*) {}, nullptr, nullptr),
              0);
  }

  cudaStream_t stream_ = nullptr;
  cudaStream_t other_ = nullptr;
  char* device_ = nullptr;
  char* host_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(, RuntimeOnHost, testing::Range(0, 8));

using LateRuntime = RuntimeOnHost;
INSTANTIATE_TEST_SUITE_P(, LateRuntime, testing::Values(0));

TEST_P(LateRuntime, NoWorkRunsBeforeAWait) {
  const cudaEvent_t done = event();
  EXPECT_EQ(cudaEventQuery(done), cudaSuccess) << "never recorded";
  for (int i = 0; i < 3; ++i) enqueue_nothing(stream_);
  ASSERT_EQ(cudaEventRecord(done, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(done), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "cudaErrorNotReady is no error";
  EXPECT_EQ(cudaEventSynchronize(done), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(done), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(done), cudaSuccess);
}

TEST_P(LateRuntime, PageableMemoryIsReadLate) {
  host_[0] = 1;
  ASSERT_EQ(cudaMemcpyAsync(device_, host_, 1, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  host_[0] = 2;
  EXPECT_EQ(read(), 2);
}

TEST_P(RuntimeOnHost, OnlyAWaitOrdersStreams) {
  std::vector<int> order;
  const auto push = [&order](cudaStream_t stream, int value) {
    struct Push {
      std::vector<int>* to;
      int value;
    };
    EXPECT_EQ(cuda_on_host_enqueue(
                  stream,
                  [](void* argument) {
                    const auto* const p = static_cast<Push*>(argument);
                    p->to->push_back(p->value);
                  },
                  new Push{&order, value}, [](void* p) { delete static_cast<Push*>(p); }),
              0);
  };
  const cudaEvent_t first = event();
  push(stream_, 1);
  ASSERT_EQ(cudaEventRecord(first, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other_, first, 0), cudaSuccess);
  push(other_, 2);
  ASSERT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(cudaEventDestroy(first), cudaSuccess);
}

TEST_P(RuntimeOnHost, AGraphRunsALibrarysWorkAtEachLaunch) {
  int runs = 0;
  static int dropped;
  dropped = 0;
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(
      cuda_on_host_enqueue(
          stream_, [](void* n) { ++*static_cast<int*>(n); }, &runs, [](void* /*n*/) { ++dropped; }),
      0);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(runs, 0);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(cudaGraphLaunch(exec, i == 1 ? other_ : stream_), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(dropped, 0);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(dropped, 1);
}

TEST_P(RuntimeOnHost, ACaptureRefusesCallsThatItCannotRecord) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
  const cudaEvent_t outside = event();
  ASSERT_EQ(cudaEventRecord(outside, other_), cudaSuccess);
  void* made = nullptr;
  const std::vector<std::pair<const char*, std::function<cudaError_t()>>> calls{
      {"cudaMalloc", [&] { return cudaMalloc(&made, 1); }},
      {"cudaFree", [&] { return cudaFree(device_); }},
      {"synchronize", [&] { return cudaStreamSynchronize(stream_); }},
      {"query", [&] { return cudaStreamQuery(stream_); }},
      {"event", [&] { return cudaEventQuery(outside); }},
      {"memset", [&] { return cudaMemset(device_, 0, 1); }},
      {"register", [&] { return cudaHostRegister(host_, kPage, 0); }},
      {"pageable",
       [&] { return cudaMemcpyAsync(device_, host_, 1, cudaMemcpyHostToDevice, stream_); }},
  };
  for (const auto& [name, forbidden] : calls) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, mode), cudaSuccess);
    EXPECT_EQ(forbidden(), cudaErrorStreamCaptureUnsupported) << name;
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated) << name;
    EXPECT_EQ(graph, nullptr);
  }
  // a dependency outside of the capture, unless it is declared external
  ASSERT_EQ(cudaStreamBeginCapture(stream_, mode), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, outside, cudaEventWaitExternal), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, outside, 0), cudaErrorStreamCaptureIsolation);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
  // other threads are not affected
  ASSERT_EQ(cudaStreamBeginCapture(stream_, mode), cudaSuccess);
  std::jthread([&] { EXPECT_EQ(cudaMalloc(&made, 1), cudaSuccess); }).join();
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaFree(made), cudaSuccess);
  EXPECT_EQ(cudaEventRecordWithFlags(outside, stream_, cudaEventRecordExternal),
            cudaErrorInvalidValue)
      << "outside a capture";
  EXPECT_EQ(cudaEventDestroy(outside), cudaSuccess);
}

TEST_P(RuntimeOnHost, CopiesMustMatchTheirPointers) {
  const auto copy = [&](void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, stream_);
  };
  EXPECT_EQ(copy(device_, host_, kPage, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(copy(device_, host_, kPage + 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(device_ + 1, host_, kPage, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(device_, host_, 1, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(device_, host_, 1, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(copy(device_, device_ + 8, 9, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(device_, device_ + 8, 8, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(device_, 0, kPage + 1, stream_), cudaErrorInvalidValue);
  char* const freed = memory(16);
  EXPECT_EQ(cudaFree(freed), cudaSuccess);
  EXPECT_EQ(cudaFree(freed), cudaErrorInvalidValue);
  EXPECT_EQ(copy(device_, freed, 1, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
}

TEST_P(RuntimeOnHost, PagesAreRegisteredOnce) {
  EXPECT_EQ(cudaHostUnregister(host_), cudaErrorHostMemoryNotRegistered);
  EXPECT_EQ(cudaHostRegister(host_, kPage, 0x100), cudaErrorInvalidValue);
  ASSERT_EQ(cudaHostRegister(host_, kPage, cudaHostRegisterPortable), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(host_ + 8, 8, 0), cudaErrorHostMemoryAlreadyRegistered);
  cudaPointerAttributes about{};
  EXPECT_EQ(cudaPointerGetAttributes(&about, host_ + 5), cudaSuccess);
  EXPECT_EQ(about.type, cudaMemoryTypeHost);
  EXPECT_EQ(cudaHostUnregister(host_), cudaSuccess);
  EXPECT_EQ(cudaPointerGetAttributes(&about, host_), cudaSuccess);
  EXPECT_EQ(about.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(cudaPointerGetAttributes(&about, device_ + 1), cudaSuccess);
  EXPECT_EQ(about.type, cudaMemoryTypeDevice);
  cudaGetLastError();
}

TEST_P(RuntimeOnHost, ReadOnlyPagesAreRegisteredForReading) {
  ASSERT_EQ(mprotect(host_, kPage, PROT_READ), 0);
  EXPECT_EQ(cudaHostRegister(host_, kPage, 0), cudaErrorInvalidValue);
  ASSERT_EQ(cudaHostRegister(host_, kPage, cudaHostRegisterReadOnly), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(device_, host_, 8, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(host_, device_, 8, cudaMemcpyDeviceToHost, stream_),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(host_), cudaSuccess);
  ASSERT_EQ(mprotect(host_, kPage, PROT_READ | PROT_WRITE), 0);
}

TEST_P(RuntimeOnHost, AProcessCannotOpenItsOwnHandle) {
  cudaIpcMemHandle_t handle{};
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, device_ + 1), cudaErrorInvalidValue);
  ASSERT_EQ(cudaIpcGetMemHandle(&handle, device_), cudaSuccess);
  ASSERT_EQ(cudaMemset(device_, 42, kPage), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
  void* opened = nullptr;
  EXPECT_EQ(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess),
            cudaErrorDeviceUninitialized)
      << "opened its own handle";
  handle.reserved[0] ^= 1;
  EXPECT_NE(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess), cudaSuccess);
  cudaGetLastError();
}

TEST_P(RuntimeOnHost, DestroyedHandlesAreRefused) {
  const cudaEvent_t gone = event();
  EXPECT_EQ(cudaEventDestroy(gone), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(gone, stream_), cudaErrorInvalidResourceHandle);
  const cudaStream_t ended = stream();
  EXPECT_EQ(cudaStreamDestroy(ended), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(ended), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace cuda_on_host
