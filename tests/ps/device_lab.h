// A device, real or fake, for tests of shards and servers with weights on a device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "common/device/device.h"
#include "ps/engine/device_engine.h"
#include "tests/device/fake_device.h"
#include "tests/device/need_device.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {

// Owns a device and gives the test access to its memory.
class Lab {
 public:
  explicit Lab(std::shared_ptr<device::Device> device)
      : device_(std::move(device)),
        pinned_(device::registered(device_, heap_floats, [](const std::string&) {})),
        memory_(device::device_floats(device_)),
        stream_(device_->stream()) {}

  std::shared_ptr<SliceEngine> engine(size_t staging_bytes = size_t{64} << 20) const {
    return std::make_shared<DeviceEngine>(
        DeviceEngineSetup{device_, nullptr, pinned_, staging_bytes});
  }

  std::vector<float> read(const Payload& payload) const {
    if (!payload.on_device) return floats_of(payload);
    std::vector<float> out(payload.float_count());
    stream_->copy_out(payload.bytes.data(), payload.bytes.size(), out.data());
    return out;
  }

  // Overwrites a payload on the device, as another process does that owns its memory.
  void overwrite(const Payload& payload, float value) const {
    const std::vector<float> values(payload.float_count(), value);
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): the owner's own memory
    stream_->copy_in(values.data(), payload.bytes.size(), const_cast<float*>(payload.address()));
  }

  enum Place { kHeap, kPinned, kOnDevice, kOnDeviceUnaligned, kPlaces };
  Payload put(const std::vector<float>& values, Place place) const {
    const size_t skip = place == kOnDeviceUnaligned ? 1 : 0;
    const bool on_device = place == kOnDevice || skip == 1;
    const FloatAllocator heap = heap_floats;
    const FloatAllocator& from = on_device ? memory_ : place == kPinned ? pinned_ : heap;
    const std::shared_ptr<float[]> owner = from(values.size() + 4);
    float* first = owner.get() + skip;
    if (on_device) {
      stream_->copy_in(values.data(), values.size() * sizeof(float), first);
    } else {
      std::copy(values.begin(), values.end(), first);
    }
    return {owner, std::as_bytes(std::span<const float>(first, values.size())), on_device};
  }

 private:
  std::shared_ptr<device::Device> device_;
  FloatAllocator pinned_;
  FloatAllocator memory_;
  std::unique_ptr<device::Stream> stream_;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

struct DeviceCase {
  const char* name;
  bool needs_device;
  std::function<std::shared_ptr<device::Device>(uint64_t seed)> make;
};

inline std::ostream& operator<<(std::ostream& out, const DeviceCase& of) { return out << of.name; }

inline std::vector<DeviceCase> device_cases() {
  std::vector<DeviceCase> all = {
      {"Fake", false,
       [](uint64_t seed) {
         return std::make_shared<device::FakeDevice>(device::FakeOptions{seed});
       }},
      {"FakeThatRegistersNothing", false,
       [](uint64_t seed) {
         device::FakeOptions options{seed};
         options.registers = false;
         return std::make_shared<device::FakeDevice>(options);
       }},
  };
  if (device::compiled()) {
    all.push_back({"Cuda", true, [](uint64_t) {
                     return device::open({device::DeviceName::kCuda, 0});
                   }});
  }
  return all;
}

// Runs a test with each of device_cases().
class AnyEngine : public testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    if (GetParam().needs_device) {
      PP_NEED_DEVICE();
    }
  }
};

}  // namespace pushpull
