// A stage on a device, on its backend's stream. Its callers' memory is the host's, and calls return when
// the work is done, so stages overlap because each has a thread and a stream of its own.
//
// The device has the tensors that the stage reads, one behind the other, and the gradients of one
// micro-batch. All copies are from and to registered memory of the stage, but for weights: they are
// copied from the caller's memory when a pass first needs them after `new_weights`. Gradients return to
// the caller's memory tensor by tensor, while the device computes those of earlier layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/device/device.h"
#include "models/planned_stage.h"

namespace pushpull {

class DeviceStage final : public PlannedStage {
 public:
  // See make_planned_stage.
  DeviceStage(std::unique_ptr<ops::Backend> backend, const Graph& description, size_t slots,
              Place place, uint64_t seed);
  // Waits for the work on the device, which reads and writes memory of the stage.
  ~DeviceStage() override;
  DeviceStage(const DeviceStage&) = delete;
  DeviceStage& operator=(const DeviceStage&) = delete;

  void new_weights() override;
  // These throw Error(kDevice) if the device fails or takes more than a minute. After they have
  // thrown, no work reads the caller's memory.
  void forward(const Pass& pass, const float* input, float* output,
               const WeightsNeeded& needed) override;
  void backward(const Pass& pass, const float* output_gradient, float* input_gradient,
                const GradientReady& ready) override;
  float loss(const Pass& pass) const override;
  void evaluate(std::span<const float> weights, const Samples& samples, const float* input,
                float* output, std::span<HeadSums> sums) override;

 private:
  using Pinned = std::shared_ptr<float[]>;
  // A tensor that the stage reads.
  struct Tensor {
    bool is_read = false;
    bool is_statistic = false;
    bool is_here = false;  // its weights are on the device
    size_t on_host = 0;    // first float in the whole model
    size_t on_device = 0;  // first float in weights_, gradients_ and host_gradients_
    size_t floats = 0;
    // Its gradient, to the host. Null for statistics, and for tensors that a stage before reads, too.
    std::unique_ptr<device::Event> copied = {};
  };

  device::Stream& stream() { return graph().backend().stream(); }
  PlannedGraph::Batch view(const Pass& pass) const;
  float* inputs_of(size_t slot) const { return inputs_[slot].data(); }
  float* results_of(size_t slot) const {
    return results_.get() + 2 * slot * graph().result_words();
  }
  void copy_weights(Tensor& tensor, std::span<const float> weights);
  void copy_batch(const Prepared& batch, size_t slot);
  void copy_in(const float* from, size_t bytes, void* to);
  // Copy a tensor's gradient between the device and host_gradients_, and from there to its place.
  void copy_out(const Tensor& tensor);
  void give(const Tensor& tensor, std::span<float> gradients) const;
  // Waits until all work enqueued so far is done, with the event of a pass.
  void finish(device::Event& event);
  void drain() noexcept;
  template <class Do>
  void pass(Do&& enqueue);

  std::vector<Tensor> tensors_;     // of the whole model
  std::vector<size_t> before_;      // tensors that a stage before reads, too
  std::vector<size_t> statistics_;  // tensors whose gradients forward writes
  size_t keys_at_ = 0;              // first word of the keys in the inputs of a slot
  size_t scales_at_ = 0;            // of the scales
  size_t input_words_ = 0;          // of a slot

  // ---- on the device ----
  ops::Buffer weights_;
  ops::Buffer gradients_;
  std::vector<ops::Buffer> inputs_;  // of each slot: block, keys, scales

  // ---- registered host memory ----
  Pinned host_inputs_;  // of one slot
  Pinned host_in_;      // the input, or the gradient of the output
  Pinned host_out_;     // the output, or the gradient of the input
  Pinned host_gradients_;
  Pinned results_;  // of all slots: losses, then predictions

  std::unique_ptr<device::Event> forward_done_;
  std::unique_ptr<device::Event> backward_done_;  // null in the first stage
  std::unique_ptr<device::Event> evaluated_;
};

}  // namespace pushpull
