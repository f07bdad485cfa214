// Runs a batch of slices for a FakeDevice: the threads of a kernel as loops, over the kernels' own
// text (common/device/slice_update.h).
#pragma once

#include <cstddef>
#include <functional>

#include "common/device/slice_update.h"
#include "tests/device/fake_device.h"

namespace pushpull::device {

// The memory that kernels may access.
struct FakeReach {
  std::function<bool(const void*, size_t)> can_read;
  std::function<bool(const void*, size_t)> can_write;
};

// Call while device memory is accessible. PP_ASSERTs that all pointers are the device's.
void fake_update(const SliceBatch& batch, const FakeReach& reach, Fault fault);
void fake_square(const SliceBatch& batch, float divisor, double* squares, const FakeReach& reach,
                 Fault fault);
void fake_measure(const SliceBatch& batch, double* squares, const FakeReach& reach, Fault fault);

}  // namespace pushpull::device
