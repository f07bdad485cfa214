// Records for traces when a device did each part of a step: timed events between the enqueued
// operations, read after the step, so that nothing waits for them. Used on the thread of the step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/device/device.h"

namespace pushpull {

// A period of device work, in seconds since the step's clock.
struct DeviceSpan {
  enum Kind {
    kForward,  // of micro-batch `number`, counted from 0 within one `wait`
    kBackward,
    kBoth,  // forward and backward of a graph relaunched before its border was read
    kInputs,
    kWeights,  // of tensor `number`, and perhaps of tensors after it
  };
  Kind kind = kForward;
  int64_t number = 0;
  double begin_s = 0.0;
  double end_s = 0.0;
  int64_t bytes = 0;  // size of a copy
};

class DeviceTimes {
 public:
  // Identifies a recorded graph: the input slot that it reads and the gradients that it writes.
  using Place = std::pair<size_t, float*>;

  // runs: keeps the times of at most this many runs (the newest), including staged ones.
  DeviceTimes(std::shared_ptr<device::Device> device, size_t runs);

  // Each pair begins and ends a period at this point of the stream. `micro_batch` counts staged
  // micro-batches from the start.
  void begin_inputs(device::Stream& in, size_t micro_batch, int64_t bytes);
  void end_inputs(device::Stream& in, size_t micro_batch);
  // The first run after `take` sets the clock.
  void begin_run(device::Stream& in, device::Stream& compute, size_t micro_batch);
  void begin_weights(device::Stream& in, size_t tensor, int64_t bytes);
  void end_weights(device::Stream& in);
  void end_forward(device::Stream& compute, size_t micro_batch);
  void end_run(device::Stream& compute, size_t micro_batch);
  // Inside a graph: all launches of the graph share this event. launched() marks a run that
  // launches a graph.
  void end_forward(device::Stream& compute, const Place& place);
  void launched(const Place& place, size_t micro_batch);

  // Returns the origin of the times of runs since the last `take`.
  const device::Event& clock() const { return *clock_; }
  // Returns the periods of runs [first, end), which must have finished, and of the weights copied
  // since the last call.
  std::vector<DeviceSpan> take(size_t first, size_t end);
  // Discards everything enqueued since the last `take`.
  void drop();

 private:
  using EventPtr = std::unique_ptr<device::Event>;
  struct Run {
    EventPtr inputs_begun;
    EventPtr inputs_ended;
    EventPtr begun;
    EventPtr forward_ended;
    EventPtr ended;
    const device::Event* border = nullptr;  // end of forward; null if unknown
    int64_t input_bytes = 0;
  };
  struct Weights {
    EventPtr begun;
    EventPtr ended;
    size_t tensor = 0;
    int64_t bytes = 0;
  };

  Run& run(size_t micro_batch) { return runs_[micro_batch % runs_.size()]; }

  std::shared_ptr<device::Device> device_;
  EventPtr clock_;
  bool has_clock_ = false;   // since the last `take`
  size_t staged_ = 0;        // micro-batches
  size_t before_clock_ = 0;  // micro-batches staged before the clock was set
  std::vector<Run> runs_;
  std::vector<Weights> weights_;  // grows as needed
  size_t weights_used_ = 0;       // since the last `take`
  std::map<Place, EventPtr> borders_;
};

}  // namespace pushpull
