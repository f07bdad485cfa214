// Tests references to device memory between two fake devices, one for each of two processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/layout/slice_map.h"
#include "common/shm/references.h"
#include "tests/common/thrown.h"
#include "tests/device/fake_device.h"

namespace pushpull {
namespace {

using device::FakeDevice;

constexpr int64_t kElements = 3000;  // slices of 1,024, 1,024 and 952
constexpr int64_t kDeadlineMs = 1000;

std::span<const std::byte> bytes_of(const float* first, size_t n) {
  return std::as_bytes(std::span(first, n));
}

// A device without shared memory.
class Unshared : public FakeDevice {
 public:
  device::Memory allocate_shared(size_t /*bytes*/, std::string& /*handle*/) override {
    throw Error(ErrorCode::kDevice, "[device] fake:0 shares nothing");
  }
};

class DeviceReferences : public testing::Test {
 protected:
  DeviceReferences() : flat_(device_pool_.get(kElements)) {
    std::vector<float> values(kElements);
    std::iota(values.begin(), values.end(), 0.0F);
    const auto stream = device_->stream();
    stream->copy_in(values.data(), values.size() * sizeof(float), flat_.get());
    stream->synchronize(kDeadlineMs);
  }

  Payload slice(int index) const {
    const Range elements = map_.elements(index);
    return {flat_, bytes_of(flat_.get() + elements.lo, static_cast<size_t>(elements.size())), true};
  }
  static void add(Message& message, int index, Payload payload) {
    message.header.mutable_weights()->add_slices()->set_slice(index);
    message.payloads.push_back(std::move(payload));
  }
  // Returns a message with slice 1 as a reference, for a test to damage.
  Message referred() const {
    Message message;
    add(message, 1, slice(1));
    refer(message, host_pool_, map_, &device_pool_);
    return message;
  }
  static wire::Segment& segment(Message& message) {
    return *message.header.mutable_weights()->mutable_segments(0);
  }
  std::string refusal(Message message) { return refusal(std::move(message), memory_); }
  std::string refusal(Message message, PeerMemory& memory) const {
    return thrown(ErrorCode::kProtocol, [&] { resolve(message, memory, map_); });
  }
  // Reads a payload through the peer's device.
  std::vector<float> read(const Payload& payload) const {
    EXPECT_TRUE(payload.on_device);
    std::vector<float> out(payload.float_count());
    const device::Memory copy = peer_->allocate(payload.bytes.size());
    const auto stream = peer_->stream();
    stream->copy_in(payload.address(), payload.bytes.size(), copy.data());
    stream->copy_out(copy.data(), payload.bytes.size(), out.data());
    stream->synchronize(kDeadlineMs);
    return out;
  }

  SliceMap map_{kElements, 4096, 1};
  std::shared_ptr<FakeDevice> device_ = std::make_shared<FakeDevice>();
  std::shared_ptr<FakeDevice> peer_ = std::make_shared<FakeDevice>();
  SegmentPool host_pool_{[](const std::string& why) { FAIL() << why; }};
  DevicePool device_pool_{device_, [](const std::string& why) { FAIL() << why; }};
  std::shared_ptr<float[]> flat_;
  PeerMemory memory_{max_segment_bytes(map_), {}, peer_};
};

TEST_F(DeviceReferences, SlicesTravelAsReferencesAndStayInPlace) {
  Message message;
  for (const int index : {2, 0, 1}) add(message, index, slice(index));
  refer(message, host_pool_, map_, &device_pool_);
  EXPECT_TRUE(message.payloads.empty());
  EXPECT_EQ(message.header.weights().segments_size(), 1);
  resolve(message, memory_, map_);
  ASSERT_EQ(message.payloads.size(), 3U);
  EXPECT_EQ(read(message.payloads[0]).at(951), 2999.0F);
  EXPECT_EQ(read(message.payloads[1]).at(1023), 1023.0F);
  EXPECT_EQ(read(message.payloads[2]).at(0), 1024.0F);
  EXPECT_EQ(message.payloads[2].address(), message.payloads[1].address() + 1024);
  EXPECT_EQ(message.payloads[2].owner, message.payloads[1].owner);
  EXPECT_EQ(memory_.mappings(), 1U);
}

TEST_F(DeviceReferences, HostAndDeviceMayBeMixed) {
  const auto host = host_pool_.get(1024);
  std::fill_n(host.get(), 1024, 7.0F);
  const auto other = device_pool_.get(1024);
  Message message;
  add(message, 1, slice(1));
  add(message, 0, {host, bytes_of(host.get(), 1024)});
  add(message, 0, {other, bytes_of(other.get(), 1024), true});
  add(message, 2, slice(2));
  refer(message, host_pool_, map_, &device_pool_);
  EXPECT_EQ(message.header.weights().segments_size(), 3);
  resolve(message, memory_, map_);
  ASSERT_EQ(message.payloads.size(), 4U);
  EXPECT_EQ(read(message.payloads[0]).at(0), 1024.0F);
  EXPECT_FALSE(message.payloads[1].on_device);
  EXPECT_EQ(message.payloads[1].floats()[1023], 7.0F);
  EXPECT_EQ(read(message.payloads[2]).at(5), 0.0F);
  EXPECT_EQ(read(message.payloads[3]).at(0), 2048.0F);
}

TEST_F(DeviceReferences, WithoutADevicePoolSlicesStayPayloads) {
  Message message;
  add(message, 1, slice(1));
  refer(message, host_pool_, map_);
  EXPECT_FALSE(has_references(message.header));
  ASSERT_EQ(message.payloads.size(), 1U);
  EXPECT_TRUE(message.payloads[0].on_device);
}

TEST_F(DeviceReferences, MemoryThatIsNotSharedStaysAPayload) {
  std::vector<std::string> warnings;
  DevicePool pool(std::make_shared<Unshared>(),
                  [&](const std::string& why) { warnings.push_back(why); });
  const auto first = pool.get(1024);
  const auto second = pool.get(1024);
  EXPECT_THAT(warnings, testing::ElementsAre("[device] fake:0 shares nothing"));
  EXPECT_EQ(pool.find(bytes_of(second.get(), 1024)).segment, nullptr);
  Message message;
  add(message, 0, {first, bytes_of(first.get(), 1024), true});
  refer(message, host_pool_, map_, &pool);
  EXPECT_FALSE(has_references(message.header));
}

TEST_F(DeviceReferences, ADeviceOutOfMemorySaysSo) {
  const size_t too_much = size_t{1} << 40;
  DevicePool pool(device_, [](const std::string& why) { FAIL() << why; });
  EXPECT_THAT(thrown(ErrorCode::kDevice, [&] { pool.get(too_much); }),
              testing::HasSubstr("no room"));
}

TEST_F(DeviceReferences, BuffersAreFoundWhileAllocatedAndMayOutliveThePool) {
  std::shared_ptr<float[]> buffer;
  {
    DevicePool pool(device_, [](const std::string& why) { FAIL() << why; });
    buffer = pool.get(100);
    const float* first = buffer.get();
    EXPECT_EQ(pool.find(bytes_of(first + 16, 84)).offset, 64);
    EXPECT_EQ(pool.find(bytes_of(first + 16, 85)).segment, nullptr);
    auto gone = pool.get(100);
    const float* there = gone.get();
    gone.reset();
    EXPECT_EQ(pool.find(bytes_of(there, 1)).segment, nullptr);
  }
  EXPECT_NE(buffer, nullptr);
}

TEST_F(DeviceReferences, AProcessWithoutADeviceRefusesDeviceReferences) {
  PeerMemory none(max_segment_bytes(map_));
  EXPECT_THAT(refusal(referred(), none), testing::HasSubstr("cannot map any"));
}

TEST_F(DeviceReferences, MemoryOfAnotherDeviceIsRefused) {
  Message message = referred();
  segment(message).set_device("another");
  EXPECT_THAT(refusal(message), testing::HasSubstr("another device"));
}

TEST_F(DeviceReferences, HostileSizesAreRefused) {
  const int64_t most = max_segment_bytes(map_);
  for (const int64_t bytes : {int64_t{0}, int64_t{-1}, most + 1, INT64_MAX, INT64_MIN}) {
    Message message = referred();
    segment(message).set_bytes(bytes);
    EXPECT_THAT(refusal(message), testing::HasSubstr("at most")) << bytes;
  }
  Message message = referred();
  segment(message).set_bytes(4096);  // slice 1 ends beyond it
  EXPECT_THAT(refusal(message), testing::HasSubstr("does not lie"));
  EXPECT_EQ(memory_.mappings(), 1U);
}

TEST_F(DeviceReferences, HostileOffsetsAreRefused) {
  const int64_t whole = kElements * 4;
  for (const int64_t offset :
       {int64_t{-64}, int64_t{4}, int64_t{63}, whole - 4096 + 64, whole, INT64_MAX, INT64_MIN}) {
    Message message = referred();
    message.header.mutable_weights()->mutable_slices(0)->set_offset(offset);
    EXPECT_THAT(refusal(message), testing::HasSubstr("does not lie")) << offset;
  }
}

TEST_F(DeviceReferences, HostileHandlesAndTokensAreRefused) {
  for (const std::string& handle : {std::string("x"), std::string(), std::string(300, 'x')}) {
    Message message = referred();
    segment(message).set_handle(handle);
    EXPECT_NE(refusal(message), "") << handle;
  }
  for (const size_t length : {0, 15, 17}) {
    Message message = referred();
    segment(message).set_token(std::string(length, 't'));
    EXPECT_THAT(refusal(message), testing::HasSubstr("token")) << length;
  }
  EXPECT_EQ(memory_.mappings(), 0U);
}

TEST_F(DeviceReferences, ASegmentIsAFileOrADevicesMemory) {
  Message both = referred();
  segment(both).set_pid(1);
  EXPECT_THAT(refusal(both), testing::HasSubstr("and a file"));
  Message file = referred();
  segment(file).set_fd(3);
  EXPECT_THAT(refusal(file), testing::HasSubstr("and a file"));
  Message handle_only = referred();
  segment(handle_only).clear_device();
  EXPECT_THAT(refusal(handle_only), testing::HasSubstr("and a file"));
}

// A buffer may be allocated where another one was; its token shows that it is another segment.
TEST_F(DeviceReferences, TheTokenTellsOneSegmentFromAnother) {
  ASSERT_EQ(refusal(referred()), "");
  Message message = referred();
  segment(message).set_token(std::string(16, 't'));
  ASSERT_EQ(refusal(message), "");
  EXPECT_EQ(memory_.mappings(), 2U);
}

// Random numbers in all fields: the reference is refused, or resolves to memory that the device can
// read.
TEST_F(DeviceReferences, NoReferenceLeadsOutOfItsSegment) {
  std::mt19937_64 random(11);
  const auto pick = [&](std::vector<int64_t> values) {
    return random() % 4 == 0 ? static_cast<int64_t>(random()) : values[random() % values.size()];
  };
  int resolved = 0;
  for (int i = 0; i < 5000; ++i) {
    Message message = referred();
    wire::SliceVersion* entry = message.header.mutable_weights()->mutable_slices(0);
    entry->set_offset(pick({0, 64, 4096, 7904, 8192, -64}));
    entry->set_slice(static_cast<int32_t>(pick({0, 1, 2, 3, -1})));
    entry->set_segment(static_cast<int32_t>(pick({1, 1, 1, 2})));
    wire::Segment& s = segment(message);
    if (random() % 8 == 0) s.set_bytes(pick({16, 4096, 12000, 1 << 20}));
    if (random() % 8 == 0) s.mutable_handle()->push_back('0');
    if (random() % 16 == 0) s.set_fd(static_cast<int>(pick({0, 1})));
    try {
      resolve(message, memory_, map_);
    } catch (const Error&) {
      continue;
    }
    ++resolved;
    for (const Payload& payload : message.payloads) EXPECT_FALSE(read(payload).empty());
  }
  EXPECT_GT(resolved, 100);
}

}  // namespace
}  // namespace pushpull
