// Puts what a device has done into a worker's trace. The device's clock and the host's are brought
// together by the copies of slices: the host sees the end of each, never too early, so the shortest
// way between the two is the distance of the clocks. Nobody waits for that. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "models/device_step.h"
#include "worker/compute/gradient_sum.h"
#include "worker/trace/trace.h"

namespace pushpull {

class DeviceTrace {
 public:
  // Borrows all; makes the step keep times.
  //   device: which of the worker's.
  DeviceTrace(Trace& trace, DeviceStep& step, const SliceMap& map, uint8_t device = 0);

  // A part of a step begins on the host.
  void begin();
  // The host has seen just now that this slice of the sum, which keeps times, was copied.
  void copied(const GradientSum& sum, int slice, double now_s);
  // The step was waited for.
  //   first: its micro-batches count from here.
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
  double clock_s_ = 0.0;  // of the host, where the device's is 0
  std::vector<Slice> slices_;
};

}  // namespace pushpull
