// The CPU's operations on the compute stream of a fake device: the same bits, in an order that only
// events decide. For tests of code that drives a device.
#pragma once

#include <memory>

#include "models/ops/ops.h"
#include "tests/device/fake_device.h"

namespace pushpull {

// device: a FakeDevice.
std::unique_ptr<ops::Backend> make_queued_backend(std::shared_ptr<device::Device> device,
                                                  int threads = 1);

}  // namespace pushpull
