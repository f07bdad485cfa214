// The devices of a worker as a team, and the trace of their activities.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/thread_pool.h"
#include "common/update/range_update.h"
#include "models/device_step.h"
#include "worker/compute/gradient_source.h"
#include "worker/compute/gradient_sum.h"
#include "worker/member/trace.h"

namespace pushpull {

// Adds a device's events to a worker's trace. The clocks are aligned by the copies of slices: the
// host sees each end late, never early, so the smallest difference seen is the offset of the
// clocks. Adds no waiting. Single-threaded.
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

// The inputs of devices. A device's next micro-batch is copied in while it computes.
// Single-threaded.
class StagedInputs {
 public:
  // Borrows both.
  StagedInputs(std::vector<DeviceStep*> devices, MicroBatches& batches);

  // Stages this micro-batch as the input of the device's next run.
  void stage(size_t device, int64_t step, int64_t micro_batch);
  // Stages the micro-batch of `node` with this index for the device's next node, if it has been read
  // by now: slices that are ready to push must not wait for it. Does nothing without a node. Called
  // between nodes, and once all micro-batches of a node are enqueued.
  void stage_ahead(size_t device, int64_t step, Range node, int64_t index);
  // Forgets what is staged.
  void clear();

 private:
  // A micro-batch copied to a device ahead of its use.
  struct Ahead {
    int64_t step = -1;  // -1 if there is none
    int64_t micro_batch = -1;
    HashSum hash;
  };

  const std::vector<DeviceStep*> devices_;
  MicroBatches& batches_;
  std::vector<Ahead> ahead_;  // by device
};

// Several devices of one worker. Each computes and sums a part of a node's micro-batches; the host
// adds the parts along the same tree (P1), slice by slice, as a server does. Called by the thread
// that computes; runs one more thread for each further device.

// One model with replicas on several devices. The first device does all work other than training.
class TeamModel final : public Model {
 public:
  // members: at least one, each on a different device. All use the kernel choices of the first.
  // Throws Error(kUsage) if their numerics differ.
  explicit TeamModel(std::vector<std::unique_ptr<Model>> members);

  float train(std::span<const float> weights, const Samples& samples, std::span<float> gradients,
              const GradientReady& ready, const WeightsNeeded& needed) override;
  void evaluate(std::span<const float> weights, const Samples& samples,
                std::span<HeadSums> sums) override;
  // Of all devices.
  size_t arena_bytes() const override;
  size_t slots() const override;
  DeviceStep* device_step() override { return members_.front()->device_step(); }
  std::vector<DeviceStep*> device_steps() override;
  std::string numerics() const override { return members_.front()->numerics(); }
  std::string choices() const override { return members_.front()->choices(); }
  void choose(const std::string& choices) override;

 private:
  std::vector<std::unique_ptr<Model>> members_;
};

class DeviceTeam final : public GradientSource {
 public:
  // Borrows `steps`, `table` and `batches`. memory: where the sum is written and sent from.
  DeviceTeam(const std::vector<DeviceStep*>& steps, const TensorTable& table, const SliceMap& map,
             MicroBatches& batches, FloatAllocator memory);
  ~DeviceTeam() override;
  DeviceTeam(const DeviceTeam&) = delete;
  DeviceTeam& operator=(const DeviceTeam&) = delete;

  void set_trace(Trace& trace) override;
  // Waits for all weights first: with several devices, waiting layer by layer gains little.
  bool node(const NodeWork& work, std::vector<float>& losses) override;
  void abandon() override { inputs_.clear(); }
  std::span<const float> sum() const override {
    return {sum_.get(), static_cast<size_t>(map_.total())};
  }
  bool finite(int slice, const Payload& /*part*/) const override {
    return finite_[static_cast<size_t>(slice)];
  }

 private:
  // A subtree that one device computes.
  struct Part {
    DeviceStep* step;
    Range leaves;
    GradientSum* sum;
    DeviceTrace* trace;  // null unless traced
  };
  struct Member {
    DeviceStep* step;
    bool has_begun = false;                          // has copied weights_
    std::vector<std::unique_ptr<GradientSum>> sums;  // one per subtree, as many as were ever needed
    std::vector<Part> parts;
    std::unique_ptr<DeviceTrace> trace;
  };

  void plan(int64_t leaves);
  bool enqueue(const NodeWork& work);
  bool enqueue(const NodeWork& work, const Part& part, size_t device);
  void stage_ahead(const NodeWork& work);
  void add_up(const GradientSum::SliceReady& ready);
  void add_slice(int slice, const std::vector<Payload>& payloads);
  void drain() noexcept;

  const TensorTable& table_;
  const SliceMap map_;
  MicroBatches& batches_;
  StagedInputs inputs_;
  std::mutex reading_;  // guards batches_ and inputs_ while threads enqueue
  std::vector<Member> members_;
  ThreadPool threads_;
  BufferPool pool_;
  Trace* trace_ = nullptr;  // null unless traced
  std::shared_ptr<float[]> sum_;
  std::vector<bool> finite_;     // by slice
  std::optional<TreeSum> tree_;  // set by the first sum
  int64_t leaves_ = 0;
  std::vector<Part> parts_;  // of all members, in the order of the leaves
  bool warned_idle_ = false;
};

}  // namespace pushpull
