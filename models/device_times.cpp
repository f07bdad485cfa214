#include "models/device_times.h"

#include <algorithm>

namespace pushpull {

DeviceTimes::DeviceTimes(std::shared_ptr<device::Device> device, size_t runs)
    : device_(std::move(device)), clock_(device_->event(true)), runs_(runs) {
  for (Run& run : runs_) {
    run = {device_->event(true), device_->event(true), device_->event(true), device_->event(true),
           device_->event(true)};
  }
}

void DeviceTimes::begin_inputs(device::Stream& in, size_t micro_batch, int64_t bytes) {
  Run& staged = run(micro_batch);
  staged.input_bytes = bytes;
  in.record(*staged.inputs_begun);
}

void DeviceTimes::end_inputs(device::Stream& in, size_t micro_batch) {
  in.record(*run(micro_batch).inputs_ended);
  staged_ = micro_batch + 1;
}

void DeviceTimes::begin_run(device::Stream& in, device::Stream& compute, size_t micro_batch) {
  if (!has_clock_) {
    has_clock_ = true;
    before_clock_ = staged_;
    // after all staged inputs, before the weights and before the run
    in.record(*clock_);
    compute.wait(*clock_);
  }
  compute.record(*run(micro_batch).begun);
}

void DeviceTimes::begin_weights(device::Stream& in, size_t tensor, int64_t bytes) {
  if (weights_used_ == weights_.size()) {
    weights_.push_back({device_->event(true), device_->event(true)});
  }
  Weights& weights = weights_[weights_used_];
  weights.tensor = tensor;
  weights.bytes = bytes;
  in.record(*weights.begun);
}

void DeviceTimes::end_weights(device::Stream& in) { in.record(*weights_[weights_used_++].ended); }

void DeviceTimes::end_forward(device::Stream& compute, size_t micro_batch) {
  compute.record(*run(micro_batch).forward_ended);
  run(micro_batch).border = run(micro_batch).forward_ended.get();
}

void DeviceTimes::end_run(device::Stream& compute, size_t micro_batch) {
  compute.record(*run(micro_batch).ended);
}

void DeviceTimes::end_forward(device::Stream& compute, const Place& place) {
  EventPtr& border = borders_[place];
  if (!border) border = device_->event(true);
  compute.record(*border);
}

void DeviceTimes::launched(const Place& place, size_t micro_batch) {
  const device::Event* border = borders_.at(place).get();
  for (Run& earlier : runs_) {
    if (earlier.border == border) earlier.border = nullptr;
  }
  run(micro_batch).border = border;
}

std::vector<DeviceSpan> DeviceTimes::take(size_t first, size_t end) {
  std::vector<DeviceSpan> spans;
  const auto since = [this](const EventPtr& event) { return event->seconds_since(*clock_); };
  const auto before = [this](const EventPtr& event) { return -clock_->seconds_since(*event); };
  for (size_t i = 0; i < weights_used_; ++i) {
    const Weights& w = weights_[i];
    spans.push_back({DeviceSpan::kWeights, static_cast<int64_t>(w.tensor), since(w.begun),
                     since(w.ended), w.bytes});
  }
  const size_t kept = std::min(end - first, runs_.size() - 2);
  for (size_t micro_batch = end - kept; micro_batch < end; ++micro_batch) {
    const Run& r = run(micro_batch);
    const auto number = static_cast<int64_t>(micro_batch - first);
    const bool early = micro_batch < before_clock_;
    spans.push_back({DeviceSpan::kInputs, number,
                     early ? before(r.inputs_begun) : since(r.inputs_begun),
                     early ? before(r.inputs_ended) : since(r.inputs_ended), r.input_bytes});
    if (r.border == nullptr) {
      spans.push_back({DeviceSpan::kBoth, number, since(r.begun), since(r.ended)});
      continue;
    }
    const double border_s = r.border->seconds_since(*clock_);
    spans.push_back({DeviceSpan::kForward, number, since(r.begun), border_s});
    spans.push_back({DeviceSpan::kBackward, number, border_s, since(r.ended)});
  }
  drop();
  return spans;
}

void DeviceTimes::drop() {
  has_clock_ = false;
  weights_used_ = 0;
}

}  // namespace pushpull
