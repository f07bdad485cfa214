// The devices of a worker as a team, and the trace of their activities.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/thread_pool.h"
#include "common/update/range_update.h"
#include "models/device_step.h"
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

class DeviceTeam {
 public:
  // Stages a leaf of the node on this device. Returns false if the work is over. Called by several
  // threads.
  using Stage = std::function<bool(size_t device, int64_t leaf)>;

  // Borrows `steps`. memory: where the sum is written and sent from.
  DeviceTeam(const std::vector<DeviceStep*>& steps, const TensorTable& table, const SliceMap& map,
             FloatAllocator memory);
  ~DeviceTeam();
  DeviceTeam(const DeviceTeam&) = delete;
  DeviceTeam& operator=(const DeviceTeam&) = delete;

  // Adds each device's events to `trace`, which is borrowed. Call before the first node.
  void set_trace(Trace& trace);

  // Begins a task: all nodes until the next begin() use these weights, which must be complete.
  void begin(std::span<const float> weights);
  // Computes a node of `leaves` micro-batches, passes the slices of its sum to `ready` and appends
  // the losses in the order of the leaves. `ready` may throw; the node is then abandoned.
  //   enqueued: called once all micro-batches of the node are staged.
  // Returns false if the work was over before the end.
  bool node(int64_t leaves, const Stage& stage, const std::function<void()>& enqueued,
            const GradientSum::SliceReady& ready, std::vector<float>& losses);
  // Adds the events of the last node. first: index of its first micro-batch in the step.
  void trace(int64_t step, int64_t first);
  // Returns the first micro-batch of this device in a node of `leaves`, or nothing if it has no
  // share.
  std::optional<int64_t> first_leaf(size_t device, int64_t leaves) const;

  // See GradientSum; for the last node.
  std::span<const float> sum() const { return {sum_.get(), static_cast<size_t>(map_.total())}; }
  bool finite(int slice) const { return finite_[static_cast<size_t>(slice)]; }

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
  static bool enqueue(const Part& part, size_t device, const Stage& stage);
  void add_up(const GradientSum::SliceReady& ready);
  void add_slice(int slice, const std::vector<Payload>& payloads);
  void drain() noexcept;

  const TensorTable& table_;
  SliceMap map_;
  std::vector<Member> members_;
  ThreadPool threads_;
  BufferPool pool_;
  std::span<const float> weights_;
  std::shared_ptr<float[]> sum_;
  std::vector<bool> finite_;     // by slice
  std::optional<TreeSum> tree_;  // set by the first sum
  int64_t leaves_ = 0;
  std::vector<Part> parts_;  // of all members, in the order of the leaves
  bool warned_idle_ = false;
};

}  // namespace pushpull
