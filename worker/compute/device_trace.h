// Adds a device's events to a worker's trace. The clocks are aligned by the copies of slices: the
// host sees each end late, never early, so the smallest difference seen is the offset of the
// clocks. Adds no waiting. Single-threaded.
#pragma once

#include <cstdint>
#include <vector>

#include "models/device_step.h"
#include "worker/compute/gradient_sum.h"
#include "worker/member/trace.h"

namespace pushpull {

class DeviceTrace {
 public:
  // Borrows all references. Makes `step` keep times.
  //   device: index among the worker's devices.
  DeviceTrace(Trace& trace, DeviceStep& step, const SliceMap& map, uint8_t device = 0);

  // Begins a part of a step.
  void begin();
  // Records that the host has just seen the end of a slice's copy. `sum` must keep times.
  void copied(const GradientSum& sum, int slice, double now_s);
  // Adds the events of the part. Call after step.wait().
  //   first: index of its first micro-batch in the step.
  void end(int64_t step, int64_t first);

 private:
  struct Slice {
    int slice = 0;
    GradientSum::Copied copied;
  };

  Trace& trace_;
  DeviceStep& step_;
  const SliceMap map_;
  const uint8_t device_;
  double clock_s_ = 0.0;  // host time at which the device's clock is 0
  std::vector<Slice> slices_;
};

}  // namespace pushpull
