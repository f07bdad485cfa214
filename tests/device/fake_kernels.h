// What a FakeDevice does with a batch of slices: the threads of a kernel as loops, over the text
// that kernels have (common/device/slice_update.h).
#pragma once

#include <cstddef>
#include <functional>

#include "common/device/slice_update.h"
#include "tests/device/fake_device.h"

namespace pushpull::device {

// Memory that kernels may touch.
struct FakeReach {
  std::function<bool(const void*, size_t)> can_read;
  std::function<bool(const void*, size_t)> can_write;
};

// While device memory is open. PP_ASSERTs that all pointers are the device's.
void fake_update(const SliceBatch& batch, const FakeReach& reach, Fault fault);
void fake_square(const SliceBatch& batch, float divisor, double* squares, const FakeReach& reach,
                 Fault fault);

}  // namespace pushpull::device
