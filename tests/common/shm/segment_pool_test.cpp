#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/shm/segment.h"

namespace pushpull::segment_pool_test {
namespace {

std::span<const std::byte> bytes_of(const float* first, size_t floats) {
  return std::as_bytes(std::span(first, floats));
}

TEST(SegmentPool, FindsTheSegmentAndTheOffset) {
  SegmentPool pool([](const std::string& why) { FAIL() << why; });
  const auto a = pool.get(5000);
  const auto b = pool.get(5000);
  const auto at = pool.find(bytes_of(b.get() + 1000, 4000));
  ASSERT_TRUE(at.segment);
  EXPECT_EQ(at.offset, 4000);
  EXPECT_EQ(at.segment->data(), reinterpret_cast<std::byte*>(b.get()));
  EXPECT_EQ(pool.find(bytes_of(a.get(), 5000)).segment->data(),
            reinterpret_cast<std::byte*>(a.get()));
}

TEST(SegmentPool, RangesOutsideASegmentAreNotFound) {
  SegmentPool pool([](const std::string& why) { FAIL() << why; });
  const auto a = pool.get(1000);
  const std::vector<float> heap(1000);
  EXPECT_FALSE(pool.find(bytes_of(heap.data(), 1000)).segment);
  const size_t whole = pool.find(bytes_of(a.get(), 1)).segment->bytes() / sizeof(float);
  EXPECT_TRUE(pool.find(bytes_of(a.get(), whole)).segment);
  EXPECT_FALSE(pool.find(bytes_of(a.get(), whole + 1)).segment);
  EXPECT_FALSE(pool.find(bytes_of(a.get() - 1, 2)).segment);
}

TEST(SegmentPool, AFreedBufferIsNotFound) {
  SegmentPool pool([](const std::string& why) { FAIL() << why; });
  auto a = pool.get(1000);
  const float* first = a.get();
  a.reset();
  EXPECT_FALSE(pool.find(bytes_of(first, 1)).segment);
}

TEST(SegmentPool, BuffersMayOutliveThePool) {
  std::shared_ptr<float[]> buffer;
  {
    SegmentPool pool([](const std::string& why) { FAIL() << why; });
    BufferPool buffers(1000, [&](size_t floats) { return pool.get(floats); });
    buffer = buffers.get();
  }
  std::memset(buffer.get(), 1, 4000);
}

TEST(SegmentPool, WithoutSharedMemoryItReportsOnceAndUsesTheHeap) {
  std::vector<std::string> warnings;
  SegmentPool pool([&](const std::string& why) { warnings.push_back(why); });
  constexpr size_t kFloats = size_t{1} << 19;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit{kFloats, before.rlim_max};  // a quarter of the requested size
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto a = pool.get(kFloats);
  const auto b = pool.get(kFloats);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("[shm]"), std::string::npos) << warnings[0];
  for (const auto& buffer : {a, b}) {
    std::memset(buffer.get(), 1, kFloats * sizeof(float));
    EXPECT_FALSE(pool.find(bytes_of(buffer.get(), kFloats)).segment);
  }
}

TEST(SegmentPool, ThreadsMayTakeFindAndReturn) {
  SegmentPool pool([](const std::string& why) { FAIL() << why; });
  BufferPool buffers(2000, [&](size_t floats) { return pool.get(floats); });
  const auto work = [&](float mark) {
    for (int i = 0; i < 200; ++i) {
      const auto pooled = buffers.get();
      const auto fresh = pool.get(1000);
      pooled[7] = mark;
      fresh[7] = mark;
      EXPECT_EQ(pool.find(bytes_of(fresh.get() + 7, 1)).offset, 28);
      EXPECT_EQ(pool.find(bytes_of(pooled.get() + 7, 1)).offset, 28);
      EXPECT_EQ(pooled[7], mark);
    }
  };
  std::vector<std::jthread> threads;
  for (int t = 0; t < 3; ++t) threads.emplace_back(work, static_cast<float>(t));
}

}  // namespace
}  // namespace pushpull::segment_pool_test
