// Several devices of one worker: each computes a part of a node's micro-batches and sums them; the
// host adds the parts along the same tree (P1), slice by slice, as a server does. Used by the
// thread that computes, and has a thread for each further device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/thread_pool.h"
#include "common/update/tree_sum.h"
#include "models/device_step.h"
#include "worker/compute/device_trace.h"
#include "worker/compute/gradient_sum.h"

namespace pushpull {

// The same model on each of several devices, as one: what is not training is computed by the first.
class TeamModel final : public Model {
 public:
  // members: at least one, each on a device of its own. All take the choices of the first. Throws
  // Error(kUsage) where they compute with different bits.
  explicit TeamModel(std::vector<std::unique_ptr<Model>> members);

  float train(std::span<const float> weights, const float* images, const int32_t* labels,
              std::span<float> gradients, const GradientReady& ready,
              const WeightsNeeded& needed) override;
  EvalSums evaluate(std::span<const float> weights, const float* images, const int32_t* labels,
                    int64_t valid) override;
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
  // Stages a leaf of the node on this device; false: it is over. Called by several threads.
  using Stage = std::function<bool(size_t device, int64_t leaf)>;

  // steps: borrowed. memory: where the sum is to lie; it is sent from there.
  DeviceTeam(const std::vector<DeviceStep*>& steps, const TensorTable& table, const SliceMap& map,
             FloatAllocator memory);
  ~DeviceTeam();
  DeviceTeam(const DeviceTeam&) = delete;
  DeviceTeam& operator=(const DeviceTeam&) = delete;

  // Each device's work is traced there. Borrowed. Before the first node.
  void set_trace(Trace& trace);

  // All nodes until the next `begin` are computed at these weights, all of which are here.
  void begin(std::span<const float> weights);
  // Computes a node of so many micro-batches and gives out the slices of its sum; `ready` may
  // throw, and then it has not happened. Losses are added in the leaves' order.
  //   enqueued: called when nothing of the node has to be staged any more.
  // Returns false where it was over before the end.
  bool node(int64_t leaves, const Stage& stage, const std::function<void()>& enqueued,
            const GradientSum::SliceReady& ready, std::vector<float>& losses);
  // After a node that was traced: its step, and its first micro-batch there.
  void trace(int64_t step, int64_t first);
  // The first micro-batch of this device in a node of so many; none: it has no share.
  std::optional<int64_t> first_leaf(size_t device, int64_t leaves) const;

  // The same as GradientSum's, for the last node.
  std::span<const float> sum() const { return {sum_.get(), static_cast<size_t>(map_.total())}; }
  bool finite(int slice) const { return finite_[static_cast<size_t>(slice)]; }

 private:
  // A subtree that one device computes.
  struct Part {
    DeviceStep* step;
    Range leaves;
    GradientSum* sum;
    DeviceTrace* trace;  // null: nobody asks
  };
  struct Member {
    DeviceStep* step;
    bool has_begun = false;                          // at weights_
    std::vector<std::unique_ptr<GradientSum>> sums;  // of as many subtrees as were needed
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
  std::optional<TreeSum> tree_;  // once there is something to sum
  int64_t leaves_ = 0;
  std::vector<Part> parts_;  // of all members, in the leaves' order
  bool said_idle_ = false;
};

}  // namespace pushpull
