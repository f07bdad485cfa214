#include "common/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace pushpull {
namespace {

TEST(ThreadPool, RunsEachTaskOnceAndNoTwoAtOnceOnOneThread) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int batch = 0; batch < 300; ++batch) {
      const int64_t n = batch % 17;
      std::vector<std::atomic<int>> runs(static_cast<size_t>(n));
      std::vector<std::atomic<int>> inside(static_cast<size_t>(threads));
      std::atomic<int> overlaps = 0;
      pool.run(n, [&](int64_t index, int thread) {
        const auto t = static_cast<size_t>(thread);
        if (++inside.at(t) != 1) ++overlaps;
        ++runs.at(static_cast<size_t>(index));
        --inside.at(t);
      });
      for (const auto& r : runs) ASSERT_EQ(r, 1) << threads << " threads, batch " << batch;
      ASSERT_EQ(overlaps, 0);
    }
  }
}

TEST(ThreadPool, TheCallerAndTheOthersShareABatch) {
  ThreadPool pool(2);
  std::atomic<int> here = 0;
  // neither task ends before the other has begun
  pool.run(2, [&](int64_t, int) {
    ++here;
    while (here < 2) std::this_thread::yield();
  });
  EXPECT_EQ(here, 2);
}

TEST(ThreadPool, WakesAfterASleep) {
  ThreadPool pool(3);
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> here = 0;
    pool.run(3, [&](int64_t, int) {
      ++here;
      while (here < 3) std::this_thread::yield();
    });
    EXPECT_EQ(here, 3);
  }
}

TEST(ThreadPool, RethrowsATasksExceptionAndKeepsWorking) {
  ThreadPool pool(2);
  for (int i = 0; i < 20; ++i) {
    EXPECT_THROW(pool.run(8,
                          [](int64_t index, int) {
                            if (index == 3) throw std::runtime_error("three");
                          }),
                 std::runtime_error);
    std::atomic<int> runs = 0;
    pool.run(8, [&](int64_t, int) { ++runs; });
    EXPECT_EQ(runs, 8);
  }
}

TEST(Serial, RunsInOrderOnTheCallersThread) {
  Serial serial;
  std::vector<int64_t> seen;
  serial.run(4, [&](int64_t index, int thread) {
    EXPECT_EQ(thread, 0);
    seen.push_back(index);
  });
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace pushpull
