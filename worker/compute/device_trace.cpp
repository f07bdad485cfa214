#include "worker/compute/device_trace.h"

#include <algorithm>
#include <limits>

namespace pushpull {

namespace {

Trace::Kind kind_of(DeviceSpan::Kind kind) {
  switch (kind) {
    case DeviceSpan::kForward:
      return Trace::kDeviceForward;
    case DeviceSpan::kBackward:
      return Trace::kDeviceBackward;
    case DeviceSpan::kBoth:
      return Trace::kDeviceBoth;
    case DeviceSpan::kInputs:
      return Trace::kDeviceInputs;
    case DeviceSpan::kWeights:
      break;
  }
  return Trace::kDeviceWeights;
}

}  // namespace

DeviceTrace::DeviceTrace(Trace& trace, DeviceStep& step, const SliceMap& map, uint8_t device)
    : trace_(trace), step_(step), map_(map), device_(device) {
  step_.keep_times();
}

void DeviceTrace::begin() {
  clock_s_ = std::numeric_limits<double>::infinity();
  slices_.clear();
}

void DeviceTrace::copied(const GradientSum& sum, int slice, double now_s) {
  slices_.push_back({slice, sum.copied(slice, step_.clock())});
  clock_s_ = std::min(clock_s_, now_s - slices_.back().copied.end_s);
}

void DeviceTrace::end(int64_t step, int64_t first) {
  for (const DeviceSpan& span : step_.spans()) {
    const bool is_weights = span.kind == DeviceSpan::kWeights;
    trace_.add(kind_of(span.kind), step, is_weights ? span.number : first + span.number,
               clock_s_ + span.begin_s, clock_s_ + span.end_s, span.bytes, device_);
  }
  for (const Slice& slice : slices_) {
    const int64_t bytes = map_.elements(slice.slice).size() * static_cast<int64_t>(sizeof(float));
    trace_.add(Trace::kDeviceSlice, step, slice.slice, clock_s_ + slice.copied.begin_s,
               clock_s_ + slice.copied.end_s, bytes, device_);
  }
}

}  // namespace pushpull
