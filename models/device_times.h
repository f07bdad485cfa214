// When a device did what of a step, for traces: timed events between what is enqueued, asked for
// when the step has ended, so that nobody waits for them. One thread, that of the step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/device/device.h"

namespace pushpull {

// Seconds since the clock of the step.
struct DeviceSpan {
  enum Kind {
    kForward,  // of micro-batch `number` of those that were waited for at once, from 0
    kBackward,
    kBoth,  // of a graph that was launched again before its border was asked for
    kInputs,
    kWeights,  // of tensor `number`, maybe with those behind it
  };
  Kind kind = kForward;
  int64_t number = 0;
  double begin_s = 0.0;
  double end_s = 0.0;
  int64_t bytes = 0;  // of copies
};

class DeviceTimes {
 public:
  // What a graph is recorded for: the slot that it reads, the gradients that it writes.
  using Place = std::pair<size_t, float*>;

  // runs: whose times are kept at most, those that are staged included; the newest.
  DeviceTimes(std::shared_ptr<device::Device> device, size_t runs);

  // Each begins and ends where it is called between what is enqueued on the stream. Micro-batches
  // are counted from the beginning, as they are staged.
  void begin_inputs(device::Stream& in, size_t micro_batch, int64_t bytes);
  void end_inputs(device::Stream& in, size_t micro_batch);
  // The first run since `take` sets the clock.
  void begin_run(device::Stream& in, device::Stream& compute, size_t micro_batch);
  void begin_weights(device::Stream& in, size_t tensor, int64_t bytes);
  void end_weights(device::Stream& in);
  void end_forward(device::Stream& compute, size_t micro_batch);
  void end_run(device::Stream& compute, size_t micro_batch);
  // In a graph, whose launches all end forward here; and the launch, of a run.
  void end_forward(device::Stream& compute, const Place& place);
  void launched(const Place& place, size_t micro_batch);

  // Where seconds are counted from. Of the runs since the last `take`.
  const device::Event& clock() const { return *clock_; }
  // Of runs [first, end), which have ended, and of weights that were copied since the last time.
  std::vector<DeviceSpan> take(size_t first, size_t end);
  // What was enqueued since the last `take` counts no more.
  void drop();

 private:
  using EventPtr = std::unique_ptr<device::Event>;
  struct Run {
    EventPtr inputs_begun;
    EventPtr inputs_ended;
    EventPtr begun;
    EventPtr forward_ended;
    EventPtr ended;
    const device::Event* border = nullptr;  // where forward has ended; null: not known
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
  bool has_clock_ = false;   // since the last take
  size_t staged_ = 0;        // micro-batches
  size_t before_clock_ = 0;  // of them
  std::vector<Run> runs_;
  std::vector<Weights> weights_;  // grows as needed
  size_t weights_used_ = 0;       // since the last take
  std::map<Place, EventPtr> borders_;
};

}  // namespace pushpull
