#include "common/base/buffer_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace pushpull {
namespace {

TEST(BufferPool, ReusesAReturnedBuffer) {
  BufferPool pool(1000);
  EXPECT_EQ(pool.floats(), 1000U);
  auto first = pool.get();
  const float* address = first.get();
  auto second = pool.get();
  EXPECT_NE(second.get(), address);
  first.reset();
  EXPECT_EQ(pool.get().get(), address);
}

TEST(BufferPool, ABufferIsReusedOnceItsLastReferenceIsGone) {
  BufferPool pool(10);
  auto first = pool.get();
  const std::shared_ptr<const void> socket = first;  // like the owner of a message in flight
  const float* address = first.get();
  first.reset();
  EXPECT_NE(pool.get().get(), address);
}

TEST(BufferPool, AllocatesOnlyAsManyBuffersAsAreInUse) {
  BufferPool pool(64);
  std::set<const float*> seen;
  for (int round = 0; round < 100; ++round) {
    const auto a = pool.get();
    const auto b = pool.get();
    seen.insert({a.get(), b.get()});
  }
  EXPECT_EQ(seen.size(), 2U);
}

TEST(BufferPool, BuffersAreAlignedForTheWidestRegisters) {
  for (const size_t floats : {0, 1, 15, 16, 17, 1000}) {
    BufferPool pool(floats);
    const auto buffer = pool.get();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.get()) % 64, 0U);
    std::fill_n(buffer.get(), floats, 1.0F);  // the whole buffer is writable
  }
}

TEST(BufferPool, LargeBuffersAreWholeHugePages) {
  BufferPool pool(3'000'000);
  const auto buffer = pool.get();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.get()) % (2U << 20U), 0U);
  std::fill_n(buffer.get(), pool.floats(), 1.0F);
}

TEST(BufferPool, AllocatesWithTheGivenFunction) {
  std::vector<std::weak_ptr<float[]>> given;
  {
    BufferPool pool(100, [&](size_t floats) {
      auto memory = heap_floats(floats);
      given.push_back(memory);
      return memory;
    });
    const auto first = pool.get();
    const auto second = pool.get();
    EXPECT_EQ(first.get(), given[0].lock().get());
    EXPECT_EQ(second.get(), given[1].lock().get());
  }
  EXPECT_EQ(given.size(), 2U);
  for (const auto& memory : given) EXPECT_TRUE(memory.expired()) << "still allocated";
}

TEST(BufferPool, ABufferMayOutliveItsPool) {
  auto pool = std::make_unique<BufferPool>(100);
  const auto buffer = pool->get();
  pool.reset();
  std::fill_n(buffer.get(), 100, 1.0F);
  EXPECT_EQ(buffer[99], 1.0F);
}

// Two threads take and fill buffers, two others check and return them, as trainer and socket
// threads do.
TEST(BufferPool, BuffersMoveBetweenThreads) {
  constexpr int kBuffers = 4000;
  constexpr int64_t kFloats = 64;
  BufferPool pool(kFloats);
  std::mutex mutex;
  std::condition_variable more;
  std::deque<std::shared_ptr<float[]>> queue;
  std::atomic<int> torn = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kBuffers; ++i) {
          auto buffer = pool.get();
          std::fill_n(buffer.get(), kFloats, static_cast<float>(t * kBuffers + i));
          const std::lock_guard lock(mutex);
          queue.push_back(std::move(buffer));
          more.notify_one();
        }
      });
      threads.emplace_back([&] {
        for (int i = 0; i < kBuffers; ++i) {
          std::shared_ptr<float[]> buffer;
          {
            std::unique_lock lock(mutex);
            more.wait(lock, [&] { return !queue.empty(); });
            buffer = std::move(queue.front());
            queue.pop_front();
          }
          torn += std::count(buffer.get(), buffer.get() + kFloats, buffer[0]) == kFloats ? 0 : 1;
        }
      });
    }
  }
  EXPECT_EQ(torn, 0);
}

}  // namespace
}  // namespace pushpull
