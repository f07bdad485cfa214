// One micro-batch after the other on a device, without waiting: weights and inputs go in on a
// stream of their own, gradients stay on the device until whoever sums them copies them out. Used
// by the thread that computes; belongs to a model and shares its table.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "common/device/device.h"
#include "models/device_times.h"
#include "models/model.h"

namespace pushpull {

class Network;

class DeviceStep {
 public:
  virtual ~DeviceStep() = default;

  virtual std::shared_ptr<device::Device> device() const = 0;

  // All micro-batches until the next `begin` are computed at these weights (the flat vector, in
  // memory that Stream::copy_in takes), which stay as they are until a `run` and then a `wait` have
  // returned: the tensors go in as the first run needs them, and are on the device for those behind
  // it. Waits for the runs before, where nobody has.
  virtual void begin(std::span<const float> weights) = 0;
  // Copies a micro-batch in; both may change on return. At most two are staged and not yet run: the
  // next one may be staged while this one is computed, also before the `begin` that it belongs to.
  virtual void stage(std::span<const float> images, std::span<const int32_t> labels) = 0;
  // What is staged and not yet run is not to be run.
  virtual void unstage() = 0;
  // Enqueues the oldest staged micro-batch.
  //   gradients: device memory, table().total floats, overwritten, as Model::train fills them.
  //   enqueued: called for each tensor in backward's order; its gradient is there once
  //     gradient(tensor) is done.
  //   needed: as Model::train asks it; may throw, and then this step has not happened: what was
  //     enqueued since `begin` has ended, what was staged is gone.
  virtual void run(float* gradients, const GradientReady& enqueued,
                   const WeightsNeeded& needed = {}) = 0;
  // Of the latest run.
  virtual const device::Event& gradient(size_t tensor) const = 0;
  // The next run must not write its gradients before the latest record of `event`.
  virtual void write_after(const device::Event& event) = 0;
  // Until all runs have ended; their mean losses since the last call, in order. Valid until the
  // next call. Throws Error(kDevice) where the device fails, or needs more than a minute.
  virtual std::span<const float> wait() = 0;

  // From here on `wait` also takes down what the device did when. Before the first run.
  virtual void keep_times() = 0;
  // Of the runs that the latest `wait` has handed out, and the copies for them: seconds since
  // `clock`, which stays until the next run.
  virtual std::span<const DeviceSpan> spans() const = 0;
  virtual const device::Event& clock() const = 0;
};

struct DeviceStepLimits {
  // In a small network kernels take less time than their launches: up to so many parameters it runs
  // as a graph, once all weights are here. A larger one starts with the layers whose weights are.
  int64_t graph_parameters = int64_t{4} << 20;
  // One is kept for each pair of a slot of inputs and a gradient buffer. A sum of n micro-batches
  // along the tree uses one buffer for each level, log2(n) + 1, and servers may still read the last
  // ones: 22 graphs at 256 micro-batches. Of several devices each subtree of a share has its own.
  // They hold calls and no tensors, so they are small beside the gradients that they write. What
  // comes beyond runs piece by piece.
  size_t graphs = 128;
  int64_t upload_floats = int64_t{1} << 20;  // of one copy at least, where there are more
  size_t losses = 64;                        // runs whose losses may be on their way to the host
};

// network: on a device; outlives the step.
std::unique_ptr<DeviceStep> make_device_step(Network& network, const DeviceStepLimits& limits = {});

}  // namespace pushpull
