// Tests that hold for every device, CUDA and fake: so the fake device can replace CUDA in tests of
// code that drives a device.
#include "common/device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/base/error.h"
#include "common/shm/segment.h"
#include "tests/common/thrown.h"
#include "tests/device/fake_device.h"
#include "tests/device/need_device.h"

namespace pushpull::device {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kDeadlineMs = 30'000;

struct DeviceCase {
  const char* name;
  bool needs_device;
  std::function<std::shared_ptr<Device>()> make;
};

std::ostream& operator<<(std::ostream& out, const DeviceCase& of) { return out << of.name; }

std::shared_ptr<Device> open_first() { return open({DeviceName::kCuda, 0}); }

std::vector<DeviceCase> cases() {
  std::vector<DeviceCase> all;
  // one seed per mood, see fake_device.cpp
  for (const auto& [name, seed] : {std::pair("Fake0", 0), std::pair("Fake1", 1),
                                   std::pair("Fake2", 2), std::pair("Fake3", 3)}) {
    all.push_back({name, false, [seed = seed] {
                     return std::make_shared<FakeDevice>(FakeOptions{static_cast<uint64_t>(seed)});
                   }});
  }
  if (compiled()) all.push_back({"Cuda", true, open_first});
  return all;
}

class AnyDevice : public testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    if (GetParam().needs_device) {
      PP_NEED_DEVICE();
    }
    device_ = GetParam().make();
    stream_ = device_->stream();
  }

  std::shared_ptr<float[]> pinned(size_t floats) const {
    return registered(device_, heap_floats,
                      [](const std::string& why) { ADD_FAILURE() << why; })(floats);
  }
  void write(const std::vector<float>& values, float* to) const {
    stream_->copy_in(values.data(), values.size() * sizeof(float), to);
  }
  std::vector<float> read(const float* from, size_t n) const {
    std::vector<float> values(n);
    stream_->copy_out(from, n * sizeof(float), values.data());
    return values;
  }
  Memory floats(size_t n) const { return device_->allocate(n * sizeof(float)); }
  // Returns `marks` after a check of `values`, which begin `skip` floats after an aligned address.
  std::vector<int64_t> marked(const std::vector<float>& values, size_t skip, size_t slice,
                              int64_t mark, std::vector<int64_t> marks) const {
    const Memory memory = floats(values.size() + 4);
    const Memory on_device = device_->allocate(marks.size() * sizeof(int64_t));
    auto* first = static_cast<int64_t*>(on_device.data());
    write(values, memory.floats() + skip);
    stream_->copy_in(marks.data(), on_device.size(), first);
    stream_->find_non_finite(memory.floats() + skip, values.size(), slice, mark, first);
    stream_->copy_out(first, on_device.size(), marks.data());
    return marks;
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

INSTANTIATE_TEST_SUITE_P(, AnyDevice, testing::ValuesIn(cases()),
                         [](const auto& of) { return std::string(of.param.name); });

std::vector<float> some_values(size_t n, uint32_t seed) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) {
    seed = seed * 1664525U + 1013904223U;
    values[i] =
        std::ldexp(static_cast<float>(seed >> 8) - 8388608.0F, static_cast<int>(seed % 60) - 50);
  }
  return values;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

TEST_P(AnyDevice, HasANameAndZeroedMemory) {
  EXPECT_THAT(device_->name(), HasSubstr(":0"));
  for (const size_t n : {1, 3, 1000, 1 << 20}) {
    const Memory memory = floats(n);
    EXPECT_EQ(memory.size(), n * sizeof(float));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 256, 0U);
    EXPECT_EQ(read(memory.floats(), n), std::vector<float>(n, 0.0F));
  }
}

TEST_P(AnyDevice, CopiesSurviveARoundTrip) {
  const std::vector<float> values = some_values(100'003, 1);
  const Memory first = floats(values.size());
  const Memory second = floats(values.size());
  const auto host = pinned(values.size());
  write(values, first.floats());
  stream_->copy_out(first.data(), first.size(), host.get());
  stream_->copy_in(host.get(), first.size(), second.data());
  EXPECT_EQ(read(second.floats(), values.size()), values);
  stream_->copy_in(host.get(), 0, second.data());
}

TEST_P(AnyDevice, PageableHostMemoryMayChangeAfterTheCall) {
  const Memory memory = floats(1 << 18);
  for (int round = 0; round < 5; ++round) {
    std::vector<float> values(1 << 18, static_cast<float>(round));
    write(values, memory.floats());
    std::fill(values.begin(), values.end(), -1.0F);
    EXPECT_EQ(read(memory.floats(), 1 << 18),
              std::vector<float>(1 << 18, static_cast<float>(round)));
  }
}

TEST_P(AnyDevice, AddsWithTheHostsBits) {
  for (const size_t n : {0UL, 1UL, 3UL, 4UL, 5UL, 255UL, 1024UL, 1027UL, 300'001UL}) {
    for (const size_t skip : {0, 1, 2}) {
      std::vector<float> left = some_values(n, 7);
      std::vector<float> right = some_values(n, 11);
      if (n > 100) {
        left[0] = std::numeric_limits<float>::denorm_min();
        right[0] = std::numeric_limits<float>::denorm_min();
        left[1] = std::numeric_limits<float>::infinity();
        left[2] = -0.0F;
        right[2] = -0.0F;
        left[3] = std::numeric_limits<float>::max();
        right[3] = std::numeric_limits<float>::max();
      }
      const Memory a = floats(n + 4);
      const Memory b = floats(n + 4);
      // at least one of the two is not aligned to the widest load, 16 bytes
      write(left, a.floats() + skip);
      write(right, b.floats() + (skip == 2 ? 0 : skip));
      float* sum = b.floats() + (skip == 2 ? 0 : skip);
      stream_->add(a.floats() + skip, sum, n);
      const std::vector<float> got = read(sum, n);
      for (size_t i = 0; i < n; ++i) right[i] = left[i] + right[i];
      EXPECT_TRUE(same_bits(got, right)) << n << " " << skip;
      EXPECT_EQ(read(b.floats() + (skip == 2 ? 0 : skip) + n, 1), std::vector<float>(1, 0.0F))
          << "wrote beyond the end";
    }
  }
}

TEST_P(AnyDevice, MarksTheSliceOfANonFiniteValueAtAnyIndex) {
  constexpr int64_t kMark = (int64_t{1} << 40) + 5;
  const float bad[] = {std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN()};
  for (const size_t n : {1UL, 7UL, 1030UL, 9000UL}) {
    for (const size_t slice : {1UL, 5UL, 1024UL, 6000UL, 10'000UL}) {
      if (n / slice > 300) continue;
      for (const size_t skip : {0, 1}) {
        const size_t slices = (n + slice - 1) / slice;
        std::vector<float> values = some_values(n, 3);
        values[0] = std::numeric_limits<float>::max();
        const std::vector<int64_t> before(slices + 1, 3);
        EXPECT_EQ(marked(values, skip, slice, kMark, before), before) << n << " " << slice;
        for (size_t i = 0; i < n; i += std::max<size_t>(1, n / 9)) {
          std::vector<float> spoiled = values;
          spoiled[i] = bad[i % 3];
          spoiled[n - 1] = bad[2];
          std::vector<int64_t> want = before;
          want[i / slice] = want[slices - 1] = kMark;
          EXPECT_EQ(marked(spoiled, skip, slice, kMark, before), want)
              << n << " " << slice << " " << skip << " " << i;
        }
      }
    }
  }
  EXPECT_EQ(marked({}, 0, 1024, kMark, {3}), std::vector<int64_t>{3});
}

// One kernel checks more slices than it has rows of blocks.
TEST_P(AnyDevice, MarksEachOfManySlices) {
  constexpr size_t kSlices = 70'000;
  std::vector<float> values(kSlices, 1.0F);
  std::vector<int64_t> want(kSlices, 0);
  for (const size_t i : {size_t{0}, size_t{65'534}, size_t{65'535}, kSlices - 1}) {
    values[i] = std::numeric_limits<float>::infinity();
    want[i] = 9;
  }
  EXPECT_EQ(marked(values, 0, 1, 9, std::vector<int64_t>(kSlices)), want);
}

TEST_P(AnyDevice, EventsOrderStreams) {
  constexpr size_t kFloats = 1 << 16;
  const auto out = device_->stream();
  const auto in = device_->stream();
  const auto arrived = device_->event();
  const auto is_computed = device_->event();
  const auto is_out = device_->event();
  EXPECT_TRUE(is_out->done()) << "not done although never recorded";
  const Memory value = floats(kFloats);
  const Memory sum = floats(kFloats);
  const auto host = pinned(2 * kFloats);
  float expected = 0.0F;
  for (int round = 1; round <= 20; ++round) {
    std::fill_n(host.get(), kFloats, static_cast<float>(round));
    in->copy_in(host.get(), kFloats * sizeof(float), value.data());
    in->record(*arrived);
    stream_->wait(*arrived);
    stream_->add(value.floats(), sum.floats(), kFloats);
    stream_->record(*is_computed);
    out->wait(*is_computed);
    out->copy_out(sum.data(), kFloats * sizeof(float), host.get() + kFloats);
    out->record(*is_out);
    is_out->wait(kDeadlineMs);
    EXPECT_TRUE(is_out->done());
    EXPECT_TRUE(is_computed->done());
    expected += static_cast<float>(round);
    EXPECT_EQ(host[kFloats], expected);
    EXPECT_EQ(host[2 * kFloats - 1], expected);
  }
}

// An event that is recorded inside a graph orders other streams like any other event.
TEST_P(AnyDevice, EventsOfAGraphOrderStreams) {
  constexpr size_t kFloats = 1 << 20;
  const auto out = device_->stream();
  const auto half = device_->event();
  const auto is_read = device_->event();
  const auto is_out = device_->event();
  const Memory one = floats(kFloats);
  const Memory first = floats(kFloats);
  const Memory second = floats(kFloats);
  write(std::vector<float>(kFloats, 1.0F), one.floats());
  const auto graph = stream_->capture([&] {
    stream_->wait(*is_read);
    stream_->add(one.floats(), first.floats(), kFloats);
    stream_->record(*half);
    for (int i = 0; i < 10; ++i) stream_->add(one.floats(), second.floats(), kFloats);
  });
  ASSERT_NE(graph, nullptr);
  stream_->synchronize(kDeadlineMs);
  EXPECT_EQ(read(first.floats(), 1), std::vector<float>(1, 0.0F)) << "the capture ran work";
  const auto host = pinned(kFloats);
  for (int round = 1; round <= 10; ++round) {
    stream_->launch(*graph);
    out->wait(*half);
    out->copy_out(first.data(), first.size(), host.get());
    out->record(*is_read);
    out->record(*is_out);
    is_out->wait(kDeadlineMs);
    EXPECT_EQ(host[0], static_cast<float>(round));
    EXPECT_EQ(host[kFloats - 1], static_cast<float>(round));
  }
  EXPECT_EQ(read(second.floats(), kFloats), std::vector<float>(kFloats, 100.0F));
}

TEST_P(AnyDevice, AFailedCaptureLeavesTheStreamUnchanged) {
  const Memory one = floats(1);
  const Memory sum = floats(1);
  write({1.0F}, one.floats());
  EXPECT_THROW(stream_->capture([&] {
    stream_->add(one.floats(), sum.floats(), 1);
    throw std::runtime_error("no");
  }),
               std::runtime_error);
  stream_->add(one.floats(), sum.floats(), 1);
  EXPECT_EQ(read(sum.floats(), 1), std::vector<float>{1.0F});
}

TEST_P(AnyDevice, TimedEventsHaveADistance) {
  const Memory memory = floats(1 << 22);
  const auto begin = device_->event(true);
  const auto end = device_->event(true);
  stream_->record(*begin);
  for (int i = 0; i < 4; ++i) stream_->add(memory.floats(), memory.floats(), 1 << 22);
  stream_->record(*end);
  end->wait(kDeadlineMs);
  const double seconds = end->seconds_since(*begin);
  EXPECT_GT(seconds, 0.0);
  EXPECT_LT(seconds, 10.0);
}

TEST_P(AnyDevice, TooMuchMemoryIsRefusedAndTheDeviceStillWorks) {
  constexpr size_t kTooMuch = size_t{1} << 50;
  EXPECT_THAT(thrown(ErrorCode::kDevice, [&] { device_->allocate(kTooMuch); }),
              AllOf(HasSubstr("has no room for 1125899906842624 more bytes"), HasSubstr(" of "),
                    HasSubstr("are free")));
  const Memory memory = floats(8);
  write(std::vector<float>(8, 2.0F), memory.floats());
  stream_->add(memory.floats(), memory.floats(), 8);
  EXPECT_EQ(read(memory.floats(), 8), std::vector<float>(8, 4.0F));
}

TEST_P(AnyDevice, MemoryMayBeFreedOnAnyThread) {
  Memory memory = floats(1000);
  auto host = pinned(1000);
  stream_->copy_in(host.get(), 4000, memory.data());
  stream_->synchronize(kDeadlineMs);
  std::jthread([mine = std::move(memory), too = std::move(host)] {}).join();
  EXPECT_EQ(read(floats(1000).floats(), 1000), std::vector<float>(1000, 0.0F));
}

// The weights of a server on the same host are pages that this process may only read.
TEST_P(AnyDevice, MemoryOfAnotherProcessIsCopiedRegisteredOrNot) {
  constexpr size_t kFloats = 10'000;
  const Segment segment(kFloats * sizeof(float));
  auto* theirs = reinterpret_cast<float*>(segment.data());
  for (size_t i = 0; i < kFloats; ++i) theirs[i] = static_cast<float>(i);
  const Mapping mapping(segment.description(), 1 << 20);
  const auto* ours = mapping.bytes().data();
  std::string why;
  // whole pages: a segment's size is a multiple of them, including the token at its end
  const size_t pages = mapping.bytes().size() + Segment::kTokenBytes;
  const auto registration =
      device_->register_pages(const_cast<std::byte*>(ours), pages, Access::kReadOnly, why);
  EXPECT_EQ(registration == nullptr, !why.empty());
  if (!registration) RecordProperty("refused", why);
  const Memory memory = floats(kFloats);
  stream_->copy_in(ours, kFloats * sizeof(float), memory.data());
  const std::vector<float> got = read(memory.floats(), kFloats);
  EXPECT_TRUE(same_bits(got, std::vector<float>(theirs, theirs + kFloats)));
}

}  // namespace
}  // namespace pushpull::device
