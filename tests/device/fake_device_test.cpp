// Tests the fake device itself, because other tests rely on it: ordered work runs in order, and
// unordered work gives wrong values under some seeds.
#include "tests/device/fake_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/base/error.h"
#include "tests/common/thrown.h"

namespace pushpull::device {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSeeds = 200;
constexpr int64_t kWaitMs = 1000;

std::shared_ptr<float[]> pinned(const std::shared_ptr<Device>& device, size_t floats) {
  return registered(device, heap_floats, [](const std::string& why) { FAIL() << why; })(floats);
}

// Returns the value that the host reads after three streams pass it on: 1 -> in -> compute (+ 1) ->
// out.
float pipeline(FakeOptions options, bool streams_wait = true, bool host_waits = true) {
  const auto device = std::make_shared<FakeDevice>(options);
  const Memory value = device->allocate(4);
  const Memory one = device->allocate(4);
  const auto host = pinned(device, 2);
  // streams are destroyed before their memory, and run their pending work then
  const auto in = device->stream();
  const auto compute = device->stream();
  const auto out = device->stream();
  const auto arrived = device->event();
  const auto is_computed = device->event();
  const auto is_out = device->event();
  float result = 0.0F;
  for (int round = 0; round < 3; ++round) {
    host[0] = static_cast<float>(round);
    host[1] = -1.0F;
    in->copy_in(&host[0], 4, value.data());
    enqueue(*in, [&] { *one.floats() = 1.0F; });
    in->record(*arrived);
    if (streams_wait) compute->wait(*arrived);
    compute->add(one.floats(), value.floats(), 1);
    compute->record(*is_computed);
    if (streams_wait) out->wait(*is_computed);
    out->copy_out(value.data(), 4, &host[1]);
    out->record(*is_out);
    if (host_waits) is_out->wait(kWaitMs);
    result = 10 * result + host[1];
  }
  return result;
}
constexpr float kRight = 123.0F;

TEST(FakeDevice, OrderedWorkIsRightUnderEverySeed) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) EXPECT_EQ(pipeline({seed}), kRight) << seed;
}

TEST(FakeDevice, UnorderedWorkIsWrongUnderManySeeds) {
  uint64_t without_stream_waits = 0;
  uint64_t without_host_waits = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    without_stream_waits += pipeline({seed}, false, true) != kRight ? 1 : 0;
    without_host_waits += pipeline({seed}, true, false) != kRight ? 1 : 0;
  }
  EXPECT_GT(without_stream_waits, kSeeds / 4);
  EXPECT_GT(without_host_waits, kSeeds / 4);
}

TEST(FakeDevice, EveryFaultGivesWrongValues) {
  for (const Fault fault :
       {Fault::kStreamsDoNotWait, Fault::kHostDoesNotWait, Fault::kRecordsAreIgnored}) {
    uint64_t wrong = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed)
      wrong += pipeline({seed, fault}) != kRight ? 1 : 0;
    EXPECT_GT(wrong, kSeeds / 20) << static_cast<int>(fault);
  }
}

TEST(FakeDevice, ASeedGivesOneOrder) {
  std::set<float> seen;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const float result = pipeline({seed}, false, false);
    EXPECT_EQ(pipeline({seed}, false, false), result) << seed;
    seen.insert(result);
  }
  EXPECT_GT(seen.size(), 3U);
}

TEST(FakeDevice, AStreamRunsInOrder) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeDevice device({seed});
    const auto stream = device.stream();
    std::vector<int> ran;
    for (int i = 0; i < 9; ++i) enqueue(*stream, [&ran, i] { ran.push_back(i); });
    stream->synchronize(kWaitMs);
    EXPECT_THAT(ran, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
    EXPECT_EQ(device.runs(), 9);
  }
}

TEST(FakeDevice, AnEventThatWasNeverRecordedIsDone) {
  FakeDevice device;
  const auto stream = device.stream();
  const auto event = device.event();
  EXPECT_TRUE(event->done());
  event->wait(kWaitMs);
  stream->wait(*event);
  stream->synchronize(kWaitMs);
}

TEST(FakeDevice, AWaitIsForTheLatestRecordBeforeIt) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeDevice device({seed});
    const auto first = device.stream();
    const auto second = device.stream();
    const auto event = device.event();
    std::vector<int> ran;
    enqueue(*first, [&] { ran.push_back(1); });
    first->record(*event);
    second->wait(*event);
    enqueue(*second, [&] { ran.push_back(2); });
    // `second` waits only for the record above
    first->wait(*event);
    second->record(*event);
    first->wait(*event);
    enqueue(*first, [&] { ran.push_back(3); });
    first->record(*event);
    event->wait(kWaitMs);
    EXPECT_THAT(ran, ElementsAre(1, 2, 3));
  }
}

TEST(FakeDevice, OnlyRegisteredMemoryIsReadLate) {
  uint64_t late = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto device = std::make_shared<FakeDevice>(FakeOptions{seed});
    const auto stream = device->stream();
    const Memory value = device->allocate(4);
    const auto fast = pinned(device, 1);
    float plain = 1.0F;
    float back = 0.0F;
    stream->copy_in(&plain, 4, value.data());
    plain = 2.0F;
    stream->copy_out(value.data(), 4, &back);
    EXPECT_EQ(back, 1.0F) << seed;
    fast[0] = 1.0F;
    stream->copy_in(fast.get(), 4, value.data());
    fast[0] = 2.0F;
    stream->copy_out(value.data(), 4, &back);
    late += back == 2.0F ? 1 : 0;
  }
  EXPECT_GT(late, kSeeds / 10);
  EXPECT_LT(late, kSeeds);
}

TEST(FakeDevice, AGraphRunsAtItsLaunches) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeDevice device({seed});
    const auto stream = device.stream();
    const auto other = device.stream();
    const auto before = device.event();
    const auto inside = device.event();
    const Memory sum = device.allocate(4);
    const Memory one = device.allocate(4);
    int value = 0;
    int seen = 0;
    const auto graph = stream->capture([&] {
      stream->wait(*before);
      enqueue(*stream, [&] { seen = value; });
      stream->add(one.floats(), sum.floats(), 1);
      stream->record(*inside);
      enqueue(*stream, [&] { seen = -1; });
    });
    ASSERT_NE(graph, nullptr);
    stream->synchronize(kWaitMs);
    EXPECT_EQ(device.runs(), 0) << "the capture ran work";
    EXPECT_TRUE(inside->done()) << "the capture recorded an event";
    for (int launch = 1; launch <= 3; ++launch) {
      enqueue(*other, [&] { value = launch; });
      other->record(*before);
      stream->launch(*graph);
      int copied = 0;
      other->wait(*inside);
      enqueue(*other, [&] { copied = seen; });
      other->synchronize(kWaitMs);
      EXPECT_TRUE(copied == launch || copied == -1) << copied;
      stream->synchronize(kWaitMs);
      EXPECT_EQ(seen, -1);
    }
    EXPECT_EQ(device.launches(), 3);
  }
}

TEST(FakeDevice, AFailedCaptureLeavesTheStreamUnchanged) {
  FakeDevice device;
  const auto stream = device.stream();
  int ran = 0;
  EXPECT_THROW(stream->capture([&] {
    enqueue(*stream, [&] { ++ran; });
    throw std::runtime_error("no");
  }),
               std::runtime_error);
  const Memory value = device.allocate(4);
  float pageable = 0.0F;
  EXPECT_THROW(stream->capture([&] { stream->copy_in(&pageable, 4, value.data()); }), Error)
      << "no wait protects pageable memory at a launch";
  enqueue(*stream, [&] { ran += 10; });
  stream->synchronize(kWaitMs);
  EXPECT_EQ(ran, 10);
}

TEST(FakeDevice, ADeviceThatCannotCaptureSaysSo) {
  FakeOptions options;
  options.captures = false;
  FakeDevice device(options);
  const auto stream = device.stream();
  EXPECT_EQ(stream->capture([] { FAIL() << "called"; }), nullptr);
}

TEST(FakeDevice, MemoryIsZeroedAndFilledWithNaNWhenFreed) {
  FakeDevice device;
  const auto stream = device.stream();
  const float* kept = nullptr;
  float sum = 1.0F;
  {
    const Memory memory = device.allocate(100 * sizeof(float));
    EXPECT_EQ(memory.size(), 400U);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 256, 0U);
    kept = memory.floats();
    enqueue(*stream, [&] {
      sum = 0.0F;
      for (int i = 0; i < 100; ++i) sum += std::abs(memory.floats()[i]);
      std::fill_n(memory.floats(), 100, 7.0F);
    });
    stream->synchronize(kWaitMs);
    EXPECT_EQ(sum, 0.0F);
  }
  float gone = 0.0F;
  enqueue(*stream, [&] { gone = kept[99]; });
  stream->synchronize(kWaitMs);
  EXPECT_TRUE(std::isnan(gone));
  Memory again = device.allocate(400);
  EXPECT_EQ(again.data(), kept) << "freed memory was not reused";
  const auto [bytes, free] = again.release();
  EXPECT_EQ(again.data(), nullptr);
  free(bytes);
}

TEST(FakeDevice, MemoryMayOutliveTheDevice) {
  auto device = std::make_unique<FakeDevice>();
  const Memory memory = device->allocate(100);
  device.reset();
  EXPECT_NE(memory.data(), nullptr);
}

TEST(FakeDevice, MemoryIsLimited) {
  FakeOptions options;
  options.memory_bytes = 4096;
  FakeDevice device(options);
  const Memory first = device.allocate(3000);
  EXPECT_THAT(thrown(ErrorCode::kDevice, [&] { device.allocate(2000); }),
              AllOf(HasSubstr("no room for 2000 more bytes"), HasSubstr("1024 of 4096 are free")));
  const Memory second = device.allocate(1024);
  EXPECT_NE(first.data(), second.data());
}

TEST(FakeDeviceDeathTest, TheHostCannotTouchItsMemory) {
  FakeDevice device;
  const Memory memory = device.allocate(4);
  EXPECT_DEATH(*memory.floats() = 1.0F, "");
}

// Tests that a device of the same index, as in another process, reads this device's memory.
class SharedMemory : public testing::Test {
 protected:
  FakeDevice maker_;
  std::string handle_;
  Memory memory_ = maker_.allocate_shared(8, handle_);
  FakeDevice reader_{{.seed = 1}};

  void write(float value) {
    const auto stream = maker_.stream();
    stream->copy_in(&value, 4, memory_.data());
  }
  float read(const void* from) {
    const auto stream = reader_.stream();
    const Memory to = reader_.allocate(4);
    float out = 0.0F;
    stream->copy_in(from, 4, to.data());
    stream->copy_out(to.data(), 4, &out);
    return out;
  }
  std::string refusal(FakeDevice& device, size_t bytes, const std::string& handle) {
    return thrown(ErrorCode::kProtocol, [&] { device.open_shared(handle, bytes); });
  }
};

TEST_F(SharedMemory, IsReadByAnotherDevice) {
  const std::shared_ptr<const void> opened = reader_.open_shared(handle_, 8);
  EXPECT_EQ(read(opened.get()), 0.0F);
  write(2.5F);
  EXPECT_EQ(read(opened.get()), 2.5F);
}

TEST_F(SharedMemory, IsReadByAnotherProcess) {
  write(2.5F);
  EXPECT_EXIT(
      {
        FakeDevice device;
        const auto opened = device.open_shared(handle_, 8);
        const Memory to = device.allocate(4);
        float out = 0.0F;
        const auto stream = device.stream();
        stream->copy_in(opened.get(), 4, to.data());
        stream->copy_out(to.data(), 4, &out);
        std::_Exit(out == 2.5F ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(SharedMemory, IsRefusedForAWrongHandle) {
  EXPECT_THAT(refusal(reader_, 8192, handle_), HasSubstr("so many bytes"));
  EXPECT_THAT(refusal(reader_, 8, "x"), HasSubstr("not of this device"));
  FakeDevice other({.index = 1});
  EXPECT_NE(other.id(), reader_.id());
  EXPECT_THAT(refusal(other, 8, handle_), HasSubstr("not of this device"));
  memory_ = {};
  EXPECT_THAT(refusal(reader_, 8, handle_), HasSubstr("freed"));
}

TEST_F(SharedMemory, TheHostCannotTouchIt) {
  const std::shared_ptr<const void> opened = reader_.open_shared(handle_, 8);
  read(opened.get());
  EXPECT_DEATH(std::puts(std::to_string(*static_cast<const float*>(opened.get())).c_str()), "");
}

TEST(FakeDevice, ALostDeviceFailsInEveryCall) {
  FakeOptions options;
  options.lost_after = 3;
  FakeDevice device(options);
  const auto stream = device.stream();
  const auto event = device.event();
  const Memory memory = device.allocate(4);
  const auto work = [&] {
    for (int i = 0; i < 4; ++i) enqueue(*stream, [] {});
    stream->record(*event);
    event->wait(kWaitMs);
  };
  EXPECT_THAT(thrown(ErrorCode::kDevice, work), HasSubstr("fake:0 is lost"));
  EXPECT_EQ(device.runs(), 3);
  for (const std::function<void()>& call : std::vector<std::function<void()>>{
           [&] { event->wait(kWaitMs); }, [&] { event->done(); }, [&] { stream->record(*event); },
           [&] { stream->wait(*event); }, [&] { stream->add(memory.floats(), memory.floats(), 1); },
           [&] { stream->synchronize(kWaitMs); }, [&] { device.allocate(4); },
           [&] { stream->capture([] {}); }}) {
    EXPECT_THAT(thrown(ErrorCode::kDevice, call), HasSubstr("fake:0 is lost"));
  }
}

TEST(FakeDevice, TimedEventsHaveADistance) {
  FakeDevice device;
  const auto stream = device.stream();
  const auto begin = device.event(true);
  const auto end = device.event(true);
  stream->record(*begin);
  for (int i = 0; i < 5; ++i) enqueue(*stream, [] {});
  stream->record(*end);
  end->wait(kWaitMs);
  EXPECT_DOUBLE_EQ(end->seconds_since(*begin), 6e-6);
}

TEST(FakeDevice, AddsAndFindsNonFiniteValues) {
  FakeDevice device;
  const auto stream = device.stream();
  const Memory a = device.allocate(8);
  const Memory b = device.allocate(8);
  const Memory marks = device.allocate(2 * sizeof(int64_t));
  int64_t mark = 0;
  // returns which of the two sums was marked
  const auto marked = [&](float second) {
    const float left[] = {1.5F, second};
    const float right[] = {2.0F, 1.0F};
    int64_t found[2] = {};
    ++mark;
    stream->copy_in(left, 8, a.data());
    stream->copy_in(right, 8, b.data());
    stream->add(a.floats(), b.floats(), 2);
    stream->find_non_finite(b.floats(), 2, 1, mark, static_cast<int64_t*>(marks.data()));
    stream->copy_out(marks.data(), marks.size(), found);
    return std::pair(found[0] == mark, found[1] == mark);
  };
  EXPECT_EQ(marked(3.0F), std::pair(false, false));
  EXPECT_EQ(marked(std::numeric_limits<float>::infinity()), std::pair(false, true));
  EXPECT_EQ(marked(std::numeric_limits<float>::quiet_NaN()), std::pair(false, true));
  EXPECT_EQ(marked(4.0F), std::pair(false, false));
  float back[2] = {};
  stream->copy_out(b.data(), 8, back);
  EXPECT_THAT(back, ElementsAre(3.5F, 5.0F));
}

}  // namespace
}  // namespace pushpull::device
