// Weights in host memory stay registered with the device as long as they live.
#include "worker/compute/device_memory.h"

#include <gtest/gtest.h>

#include <memory>

#include "common/job/job.h"
#include "models/graph_model.h"
#include "tests/device/fake_device.h"
#include "tests/models/queued_backend.h"

namespace pushpull {
namespace {

using device::FakeDevice;
using device::FakeOptions;

std::unique_ptr<Model> model_on(const std::shared_ptr<FakeDevice>& device) {
  Job job;
  job.hidden = {};
  return make_model_on(make_queued_backend(device), job, image_fields({1, 2, 2}, 3));
}

TEST(DeviceMemory, IsRegisteredWhileItLives) {
  const auto device = std::make_shared<FakeDevice>(FakeOptions{});
  const auto model = model_on(device);
  model->device_step();  // allocates its own memory
  const size_t before = device->registrations();
  auto weights = weights_memory(*model)(5000);
  EXPECT_EQ(device->registrations(), before + 1);
  weights.reset();
  EXPECT_EQ(device->registrations(), before);

  const Segment segment(10000);
  const PagesMapped mapped = weights_mapped(*model);
  auto mapping = std::make_unique<Mapping>(segment.description(), 1 << 20, mapped);
  EXPECT_EQ(device->registrations(), before + 1);
  mapping.reset();
  EXPECT_EQ(device->registrations(), before);
}

TEST(DeviceMemory, IsUsedEvenIfItCannotBeRegistered) {
  const auto device = std::make_shared<FakeDevice>(FakeOptions{.registers = false});
  const auto model = model_on(device);
  EXPECT_TRUE(weights_memory(*model)(5000));
  const Segment segment(10000);
  const Mapping mapping(segment.description(), 1 << 20, weights_mapped(*model));
  EXPECT_EQ(mapping.bytes().size(), segment.bytes());
}

TEST(DeviceMemory, IsTheHeapForAModelOnTheCpu) {
  Job job;
  const auto model = make_model(job, image_fields({1, 2, 2}, 3));
  EXPECT_TRUE(weights_memory(*model)(5000));
  EXPECT_FALSE(weights_mapped(*model));
}

}  // namespace
}  // namespace pushpull
