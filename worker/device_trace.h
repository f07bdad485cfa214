// Puts what a device has done into a worker's trace. The device's clock and the host's are brought
// together by the copies of slices: the host sees the end of each, never too early, so the shortest
// way between the two is the distance of the clocks. Nobody waits for that. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "models/device_step.h"
#include "worker/gradient_sum.h"
#include "worker/trace.h"

namespace pushpull {

class DeviceTrace {
 public:
  // Borrows all; makes both keep times.
  DeviceTrace(Trace& trace, DeviceStep& step, GradientSum& sum, const SliceMap& map);

  // A part of a step begins on the host.
  void begin(double now_s);
  // The host has seen just now that this slice was copied.
  void copied(int slice, double now_s);
  // The step was waited for.
  //   first: its micro-batches count from here.
  void end(int64_t step, int64_t first, double now_s);

 private:
  struct Slice {
    int slice = 0;
    GradientSum::Copied copied;
  };

  Trace& trace_;
  DeviceStep& step_;
  GradientSum& sum_;
  const SliceMap map_;
  double begin_s_ = 0.0;
  double clock_s_ = 0.0;  // of the host, where the device's is 0
  std::vector<Slice> slices_;
};

}  // namespace pushpull
