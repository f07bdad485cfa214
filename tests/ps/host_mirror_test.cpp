#include "ps/engine/host_mirror.h"

#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "common/base/error.h"
#include "tests/common/thrown.h"
#include "tests/device/fake_device.h"

namespace pushpull {
namespace {

using device::FakeDevice;
using device::FakeOptions;

constexpr size_t kFloats = 3000;
constexpr size_t kSlice = 1000;
constexpr int64_t kDeadlineMs = 1000;

class HostMirrorTest : public testing::Test {
 protected:
  HostMirrorTest() { make({}); }

  void make(const FakeOptions& options) {
    mirror_.reset();
    generations_.reset();
    device_ = std::make_shared<FakeDevice>(options);
    generations_ = std::make_unique<BufferPool>(kFloats, [device = device_](size_t floats) {
      auto memory = std::make_shared<device::Memory>(device->allocate(floats * sizeof(float)));
      return std::shared_ptr<float[]>(memory, memory->floats());
    });
    const auto count = [this](size_t floats) {
      ++buffers_;
      return heap_floats(floats);
    };
    mirror_ = std::make_unique<HostMirror>(
        device_, device::registered(device_, count, [](const std::string&) {}), kFloats);
    buffers_ = 0;
  }
  // Returns a generation with the values first, first + 1, ...
  std::shared_ptr<float[]> generation(float first) const {
    std::vector<float> values(kFloats);
    std::iota(values.begin(), values.end(), first);
    auto out = generations_->get();
    const auto stream = device_->stream();
    stream->copy_in(values.data(), kFloats * sizeof(float), out.get());
    stream->synchronize(kDeadlineMs);
    return out;
  }
  static Payload slice(const std::shared_ptr<float[]>& generation, size_t index) {
    return {generation,
            std::as_bytes(std::span<const float>(generation.get() + index * kSlice, kSlice)), true};
  }
  Payload brought(const Payload& payload) {
    std::vector<Payload> payloads{payload};
    mirror_->bring(payloads);
    EXPECT_FALSE(payloads[0].on_device);
    return payloads[0];
  }

  int buffers_ = 0;
  std::shared_ptr<FakeDevice> device_;
  std::unique_ptr<BufferPool> generations_;
  std::unique_ptr<HostMirror> mirror_;
};

TEST_F(HostMirrorTest, SlicesHaveTheLayoutOfTheDevice) {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    make({.seed = seed, .registers = seed % 3 != 0});
    const auto there = generation(10.0F);
    const auto host = heap_floats(kSlice);
    host[0] = 5.0F;
    std::vector<Payload> payloads{slice(there, 2),
                                  {host, std::as_bytes(std::span<const float>(host.get(), kSlice))},
                                  slice(there, 0)};
    mirror_->bring(payloads);
    for (const Payload& payload : payloads) EXPECT_EQ(payload.float_count(), kSlice);
    EXPECT_EQ(payloads[0].floats()[999], 3009.0F);
    EXPECT_EQ(payloads[1].floats(), host.get());
    EXPECT_EQ(payloads[2].floats()[0], 10.0F);
    EXPECT_EQ(payloads[0].floats(), payloads[2].floats() + 2 * kSlice);
    EXPECT_EQ(payloads[0].owner, payloads[2].owner);
  }
}

TEST_F(HostMirrorTest, WaitForTheCopiesIsNeeded) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    make({.seed = seed, .fault = device::Fault::kHostDoesNotWait});
    // The generation is written by a synchronous copy, since its memory is not registered.
    // The value differs each time: reused memory still holds the previous one.
    const float first = 10.0F + static_cast<float>(seed);
    const auto there = generation(first);
    if (brought(slice(there, 0)).floats()[0] != first) ++wrong;
  }
  EXPECT_GT(wrong, 0);
}

TEST_F(HostMirrorTest, SliceIsCopiedOnce) {
  const auto there = generation(0.0F);
  const Payload first = brought(slice(there, 1));
  const int64_t runs = device_->runs();
  EXPECT_EQ(brought(slice(there, 1)).floats(), first.floats());
  EXPECT_EQ(device_->runs(), runs);
  brought(slice(there, 2));
  EXPECT_GT(device_->runs(), runs);
  EXPECT_EQ(mirror_->copies(), 1U);
}

TEST_F(HostMirrorTest, GenerationsHaveSeparateCopies) {
  const auto first = generation(0.0F);
  const auto second = generation(50.0F);
  const Payload a = brought(slice(first, 0));
  const Payload b = brought(slice(second, 0));
  EXPECT_EQ(a.floats()[7], 7.0F);
  EXPECT_EQ(b.floats()[7], 57.0F);
  EXPECT_EQ(mirror_->copies(), 2U);
}

// The allocator may give the address of a released generation to the next one.
TEST_F(HostMirrorTest, NewGenerationAtTheSameAddressIsCopiedAgain) {
  auto there = generation(0.0F);
  const float* place = there.get();
  EXPECT_EQ(brought(slice(there, 0)).floats()[0], 0.0F);
  there.reset();
  there = generation(50.0F);
  ASSERT_EQ(there.get(), place);
  EXPECT_EQ(brought(slice(there, 0)).floats()[0], 50.0F);
}

// A worker may read a slice in place while the server holds only the original.
TEST_F(HostMirrorTest, CopyLivesAsLongAsItsOriginal) {
  const auto held = generation(0.0F);
  const float* read = brought(slice(held, 0)).floats();
  for (int i = 1; i < 10; ++i) brought(slice(generation(100.0F * static_cast<float>(i)), 0));
  EXPECT_EQ(read[999], 999.0F);
}

TEST_F(HostMirrorTest, CopyLivesAsLongAsItsReaders) {
  const Payload read = brought(slice(generation(0.0F), 0));
  for (int i = 1; i < 10; ++i) brought(slice(generation(100.0F * static_cast<float>(i)), 0));
  EXPECT_EQ(read.floats()[999], 999.0F);
}

TEST_F(HostMirrorTest, MemoryIsBoundedByTheHeldGenerations) {
  auto current = generation(0.0F);
  for (int i = 1; i < 50; ++i) {
    auto next = generation(static_cast<float>(i));
    EXPECT_EQ(brought(slice(next, 0)).floats()[0], static_cast<float>(i));
    current = std::move(next);
    EXPECT_LE(mirror_->copies(), 2U);
  }
  EXPECT_LE(buffers_, 2);
}

TEST_F(HostMirrorTest, LostDeviceIsReported) {
  make({.lost_after = 1});
  std::vector<Payload> payloads{slice(generations_->get(), 0), slice(generations_->get(), 1)};
  EXPECT_NE(thrown(ErrorCode::kDevice, [&] { mirror_->bring(payloads); }), "");
}

}  // namespace
}  // namespace pushpull
