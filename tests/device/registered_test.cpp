#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/device/device.h"
#include "tests/device/fake_device.h"

namespace pushpull::device {
namespace {

const auto fail_with = [](const std::string& why) { ADD_FAILURE() << why; };

TEST(Registered, EveryBufferHasPagesOfItsOwn) {
  auto device = std::make_shared<FakeDevice>();
  const FloatAllocator memory = registered(device, heap_floats, fail_with);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<std::shared_ptr<float[]>> buffers;
  // the fake device refuses a page that is registered twice
  for (size_t floats = 1; floats < (3U << 20); floats = 3 * floats + 1) {
    buffers.push_back(memory(floats));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffers.back().get()) % page, 0U);
    std::fill_n(buffers.back().get(), floats, 1.0F);
    EXPECT_EQ(device->registrations(), buffers.size());
  }
  ASSERT_GT(buffers.size(), 10U);
  std::jthread([&] { buffers.pop_back(); }).join();
  EXPECT_EQ(device->registrations(), buffers.size());
  buffers.clear();
  EXPECT_EQ(device->registrations(), 0U);
}

TEST(Registered, PagesAreUnregisteredBeforeTheyAreFreed) {
  auto device = std::make_shared<FakeDevice>();
  size_t seen = 99;
  const FloatAllocator inner = [&](size_t floats) -> std::shared_ptr<float[]> {
    std::shared_ptr<float[]> owner = heap_floats(floats);
    return {owner.get(), [&, owner](float*) { seen = device->registrations(); }};
  };
  registered(device, inner, fail_with)(10).reset();
  EXPECT_EQ(seen, 0U);
}

TEST(Registered, ABufferKeepsTheDeviceAlive) {
  auto device = std::make_shared<FakeDevice>();
  const std::weak_ptr<FakeDevice> seen = device;
  std::shared_ptr<float[]> buffer = registered(std::move(device), heap_floats, fail_with)(1000);
  EXPECT_FALSE(seen.expired());
  buffer.reset();
  EXPECT_TRUE(seen.expired());
}

TEST(Registered, APoolsBufferIsRegisteredOnce) {
  auto device = std::make_shared<FakeDevice>();
  BufferPool pool(5000, registered(device, heap_floats, fail_with));
  pool.reserve(2);
  for (int i = 0; i < 10; ++i) {
    const auto first = pool.get();
    const auto second = pool.get();
    EXPECT_EQ(device->registrations(), 2U);
  }
}

TEST(Registered, NothingIsRegisteredForNoFloats) {
  auto device = std::make_shared<FakeDevice>();
  EXPECT_NE(registered(device, heap_floats, fail_with)(0), nullptr);
}

TEST(Registered, ARefusalIsReportedOnceAndTheMemoryIsUsed) {
  FakeOptions options;
  options.registers = false;
  auto device = std::make_shared<FakeDevice>(options);
  std::vector<std::string> warnings;
  const FloatAllocator memory =
      registered(device, heap_floats, [&](const std::string& why) { warnings.push_back(why); });
  const FloatAllocator copy = memory;
  const auto first = memory(100);
  const auto second = copy(100);
  first[99] = second[99] = 1.0F;
  EXPECT_EQ(warnings, std::vector<std::string>{"fake:0 registers nothing"});
}

}  // namespace
}  // namespace pushpull::device
