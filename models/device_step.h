// Runs micro-batches on a device one after the other without waiting for it. Weights and inputs are
// copied in on a separate stream; gradients stay on the device until they are summed there and
// copied out. Belongs to a model and shares its table. Used on the thread that computes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "common/device/device.h"
#include "models/device_times.h"
#include "models/model.h"

namespace pushpull {

class PlannedGraph;

class DeviceStep {
 public:
  virtual ~DeviceStep() = default;

  virtual std::shared_ptr<device::Device> device() const = 0;

  // Sets the weights of all micro-batches until the next `begin`. Tensors are copied to the device
  // when the first run needs them, and stay there for later runs. Waits for earlier runs that
  // `wait` has not waited for.
  //   weights: the flat vector, in memory that Stream::copy_in accepts. They must not change until
  //   a `run` and then a `wait` have returned.
  virtual void begin(std::span<const float> weights) = 0;
  // Copies a micro-batch in; its block may change on return. At most two micro-batches may be
  // staged and not yet run, so the next one can be staged while this one is computed, even before
  // its own `begin`.
  virtual void stage(const Samples& samples) = 0;
  // Discards micro-batches that are staged but not run.
  virtual void unstage() = 0;
  // Enqueues the oldest staged micro-batch.
  //   gradients: device memory, table().total floats, overwritten as Model::train does.
  //   enqueued: called for each tensor in backward order; its gradient is ready once
  //   gradient(tensor) is done.
  //   needed: as in Model::train. It may throw: the step is then abandoned, all work enqueued since
  //   `begin` has finished, and staged micro-batches are discarded.
  virtual void run(float* gradients, const GradientReady& enqueued,
                   const WeightsNeeded& needed = {}) = 0;
  // Returns the event of a tensor's gradient in the latest run.
  virtual const device::Event& gradient(size_t tensor) const = 0;
  // Makes the next run write its gradients only after the latest record of `event`.
  virtual void write_after(const device::Event& event) = 0;
  // Waits for all runs. Returns their mean losses since the last call, in order; valid until the
  // next call. Throws Error(kDevice) if the device fails or takes more than a minute.
  virtual std::span<const float> wait() = 0;

  // Makes `wait` also collect timings. Call it before the first micro-batch is staged; later calls
  // change nothing.
  virtual void keep_times() = 0;
  // Returns timings of the runs that the latest `wait` returned, and of their copies, in seconds
  // since `clock`, which does not change until the next run.
  virtual std::span<const DeviceSpan> spans() const = 0;
  virtual const device::Event& clock() const = 0;
};

struct DeviceStepLimits {
  // Launching a kernel takes longer than running a small one, so a run is launched as CUDA graphs.
  // Forward is split into graphs of at least this many parameters. Each is launched when its weights
  // are on the device, which hides the copies of later weights; backward belongs to the last one.
  int64_t graph_parameters = int64_t{4} << 20;
  // Pairs of input slot and gradient buffer that keep their graphs. A sum of n micro-batches along the
  // tree uses one buffer per level, log2(n) + 1, and servers may still be reading the last ones: 22
  // pairs at 256 micro-batches. With several devices each subtree of a share has its own. Graphs
  // hold calls and no tensors, so they are small compared to the gradients. Runs beyond the limit
  // are enqueued without a graph.
  size_t graphs = 128;
  int64_t upload_floats = int64_t{1} << 20;  // floats in one copy, at least, but for a part's last
  size_t losses = 64;                        // runs with losses in flight to the host
};

// Makes the DeviceStep of a graph on a device. The graph must outlive it.
//   seed: of the random operations, as in GraphModel.
std::unique_ptr<DeviceStep> make_device_step(PlannedGraph& graph, uint64_t seed,
                                             const DeviceStepLimits& limits = {});

}  // namespace pushpull
