#include "datasets/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "common/base/error.h"
#include "common/job/job.h"
#include "tests/datasets/allocations.h"
#include "tests/datasets/images.h"

namespace pushpull {
namespace {

// Every pixel of sample n is n. Counts reads on the test's thread and on others, can fail at a
// sample, and can block reads on other threads at a gate.
class FakeData final : public Dataset {
 public:
  FakeData(int64_t samples, int64_t pixels) : samples_(samples), pixels_(pixels) {}

  int64_t size(Split split) const override { return split == Split::kTrain ? samples_ : 0; }
  const FieldTable& fields() const override { return fields_; }
  const std::string& digest() const override { return digest_; }

  void read(const Request& request, float* block) const override {
    EXPECT_EQ(request.split, Split::kTrain);
    const std::span<const int64_t> indices = request.indices;
    float* images = block + request.layout.offset(0);
    int32_t* labels = as_ints(block + request.layout.offset(1));
    if (std::this_thread::get_id() == home_) {
      ++reads_at_home;
    } else {
      pass_gate();
      ++reads_elsewhere;
    }
    for (size_t k = 0; k < indices.size(); ++k) {
      if (indices[k] == fails_at) throw Error(ErrorCode::kData, "[data] sample is damaged");
      labels[k] = static_cast<int32_t>(indices[k]);
      std::fill_n(images + static_cast<int64_t>(k) * pixels_, pixels_,
                  static_cast<float>(indices[k]));
    }
  }

  void close_gate() {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  void open_gate() {
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }
  void wait_for_arrivals(int count) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrivals_ >= count; });
  }

  mutable std::atomic<int> reads_at_home{0};
  mutable std::atomic<int> reads_elsewhere{0};
  std::atomic<int64_t> fails_at{-1};

 private:
  void pass_gate() const {
    std::unique_lock lock(mutex_);
    ++arrivals_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }

  int64_t samples_;
  int64_t pixels_;
  FieldTable fields_ = image_fields({1, 1, pixels_}, 1 << 20);
  std::string digest_;
  std::thread::id home_ = std::this_thread::get_id();
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int arrivals_ = 0;
  bool open_ = true;
};

constexpr int64_t kLargePixels = 32768;  // a micro-batch of 2: 256 KiB, so it is prefetched

Job loader_job(bool shuffle = false) {
  Job job;
  job.global_batch = 8;
  job.micro_batch = 2;
  job.shuffle = shuffle;
  return job;
}

void expect_holds(const MicroBatch& batch, const Job& job, const Dataset& data, int64_t step,
                  int64_t index) {
  Sampler sampler(job, data.size(Split::kTrain));
  const std::span<const int64_t> samples = sampler.indices(step, index);
  ASSERT_EQ(batch.step, step);
  ASSERT_EQ(batch.index, index);
  const BatchLayout layout(data.fields(), std::ssize(samples));
  ASSERT_EQ(batch.block.size(), layout.words());
  const int32_t* labels = as_ints(batch.block.data() + layout.offset(1));
  ASSERT_TRUE(
      std::equal(samples.begin(), samples.end(), batch.indices.begin(), batch.indices.end()));
  for (size_t k = 0; k < samples.size(); ++k) {
    const auto* image = batch.block.data() + static_cast<int64_t>(k) * pixels_of(data);
    EXPECT_EQ(labels[k], samples[k]);
    EXPECT_EQ(image[0], static_cast<float>(samples[k]));
    EXPECT_EQ(image[pixels_of(data) - 1], static_cast<float>(samples[k]));
  }
}

TEST(Loader, ReadySaysWhetherGetWouldBlock) {
  const Job job = loader_job();
  FakeData data(64, kLargePixels);
  Loader loader(job, data);
  EXPECT_FALSE(loader.ready(0, 0)) << "ready without a hint";
  data.close_gate();
  loader.hint(0, 0);
  data.wait_for_arrivals(1);
  EXPECT_FALSE(loader.ready(0, 0));
  loader.hint(0, 1);
  data.open_gate();
  data.wait_for_arrivals(2);  // the first one is read by then
  EXPECT_TRUE(loader.ready(0, 0));
  EXPECT_FALSE(loader.ready(5, 0));
  expect_holds(loader.get(0, 0), job, data, 0, 0);
  const FakeData small(64, 8);
  Loader at_once(job, small);
  EXPECT_TRUE(at_once.ready(5, 0));
}

TEST(Loader, ReadsWithoutAHint) {
  const Job job = loader_job(true);
  FakeData data(64, kLargePixels);
  Loader loader(job, data);
  expect_holds(loader.get(3, 1), job, data, 3, 1);
  expect_holds(loader.get(0, 0), job, data, 0, 0);
  EXPECT_EQ(data.reads_elsewhere, 0);
}

TEST(Loader, PrefetchesOnItsOwnThread) {
  const Job job = loader_job(true);
  FakeData data(64, kLargePixels);
  Loader loader(job, data);
  loader.hint(0, 0);
  loader.hint(0, 1);
  data.wait_for_arrivals(2);
  expect_holds(loader.get(0, 0), job, data, 0, 0);
  expect_holds(loader.get(0, 1), job, data, 0, 1);
  EXPECT_EQ(data.reads_elsewhere, 2);
  EXPECT_EQ(data.reads_at_home, 0);
}

TEST(Loader, DropsAHintThatTheCallerReadsFirst) {
  const Job job = loader_job();
  FakeData data(64, kLargePixels);
  data.close_gate();
  Loader loader(job, data);
  loader.hint(0, 0);
  loader.hint(0, 1);
  data.wait_for_arrivals(1);  // the thread is blocked in (0, 0)
  expect_holds(loader.get(0, 1), job, data, 0, 1);
  EXPECT_EQ(data.reads_at_home, 1);
  data.open_gate();
  expect_holds(loader.get(0, 0), job, data, 0, 0);
  loader.hint(0, 2);
  data.wait_for_arrivals(2);  // the thread continues with (0, 2), not with (0, 1)
  expect_holds(loader.get(0, 2), job, data, 0, 2);
  EXPECT_EQ(data.reads_at_home, 1);
  EXPECT_EQ(data.reads_elsewhere, 2);
}

TEST(Loader, DropsTheOldestHints) {
  const Job job = loader_job();
  FakeData data(640, kLargePixels);
  data.close_gate();
  Loader loader(job, data);
  loader.hint(0, 0);
  data.wait_for_arrivals(1);
  for (int64_t step = 1; step <= 20; ++step) loader.hint(step, 0);
  data.open_gate();
  data.wait_for_arrivals(9);  // (0, 0), dropped while it was read, and the newest eight
  expect_holds(loader.get(20, 0), job, data, 20, 0);
  EXPECT_EQ(data.reads_at_home, 0);
  expect_holds(loader.get(12, 0), job, data, 12, 0);  // the ninth from the end is dropped
  EXPECT_EQ(data.reads_at_home, 1);
  EXPECT_EQ(data.reads_elsewhere, 9);
}

TEST(Loader, ReadsATwiceHintedMicroBatchOnce) {
  const Job job = loader_job();
  FakeData data(64, kLargePixels);
  Loader loader(job, data);
  for (int n = 0; n < 5; ++n) loader.hint(1, 1);
  data.wait_for_arrivals(1);
  expect_holds(loader.get(1, 1), job, data, 1, 1);
  EXPECT_EQ(data.reads_elsewhere, 1);
}

TEST(Loader, ReadsSmallMicroBatchesWithoutTheThread) {
  const Job job = loader_job();
  FakeData data(64, 10);
  Loader loader(job, data);
  loader.hint(0, 0);
  expect_holds(loader.get(0, 0), job, data, 0, 0);
  EXPECT_EQ(data.reads_elsewhere, 0);
}

TEST(Loader, ErrorsOfTheDatasetSurfaceInGet) {
  const Job job = loader_job();
  for (const int64_t pixels : {int64_t{10}, kLargePixels}) {
    FakeData data(64, pixels);
    data.fails_at = 3;
    Loader loader(job, data);
    loader.hint(0, 0);
    loader.hint(0, 1);  // samples 2 and 3
    if (pixels == kLargePixels) data.wait_for_arrivals(2);
    expect_holds(loader.get(0, 0), job, data, 0, 0);
    EXPECT_THAT([&] { loader.get(0, 1); },
                testing::ThrowsMessage<Error>(testing::HasSubstr("damaged")));
    expect_holds(loader.get(0, 2), job, data, 0, 2);
    data.fails_at = -1;
    expect_holds(loader.get(0, 1), job, data, 0, 1);  // an error is not kept
  }
}

TEST(Loader, StopsWithHintsLeft) {
  const Job job = loader_job();
  FakeData data(64, kLargePixels);
  data.close_gate();
  {
    Loader loader(job, data);
    for (int64_t index = 0; index < 4; ++index) loader.hint(0, index);
    data.wait_for_arrivals(1);
    data.open_gate();
  }
  // the read in progress, and reads that began before the thread saw the stop
  EXPECT_LE(data.reads_elsewhere, 4);
  EXPECT_GE(data.reads_elsewhere, 1);
}

TEST(Loader, AllocatesNothingInTheSteadyState) {
  const Job job = loader_job();
  FakeData data(64, kLargePixels);
  Loader loader(job, data);
  const auto round = [&] {
    for (int64_t step = 0; step < 8; ++step) {
      for (int64_t index = 0; index < 4; ++index) loader.hint(step, index);
      for (int64_t index = 0; index < 4; ++index) loader.get(step, index);
    }
  };
  loader.get(0, 0);  // the buffer for reads on this thread
  for (int n = 0; n < 20; ++n) round();
  const size_t before = allocation_count();
  for (int n = 0; n < 20; ++n) round();
  EXPECT_EQ(allocation_count(), before);
}

TEST(Loader, ReturnsTheRightMicroBatchForAnyOrderOfCalls) {
  const Job job = loader_job(true);
  FakeData data(100, kLargePixels);
  Loader loader(job, data);
  Sampler sampler(job, data.size(Split::kTrain));
  std::mt19937_64 random(7);
  for (int n = 0; n < 1000; ++n) {
    const auto step = static_cast<int64_t>(random() % 30);
    const auto index = static_cast<int64_t>(random() % 4);
    if (random() % 3 != 0) {
      loader.hint(step, index);
      continue;
    }
    const MicroBatch& batch = loader.get(step, index);
    ASSERT_EQ(batch.step, step);
    ASSERT_EQ(batch.index, index);
    const std::span<const int64_t> samples = sampler.indices(step, index);
    for (size_t k = 0; k < 2; ++k) {
      ASSERT_EQ(batch.indices[k], samples[k]);
      ASSERT_EQ(batch.block[k * kLargePixels + 5], static_cast<float>(samples[k]));
    }
  }
}

}  // namespace
}  // namespace pushpull
