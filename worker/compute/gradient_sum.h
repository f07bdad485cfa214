// Sums the gradients of a node's micro-batches along the fixed tree (P1) where the model computes
// them, and hands out each slice as soon as the last backward pass has finished it. One thread.
//
// The leaves of node [lo, hi) come in order. A stack holds the sums that wait for their right
// sibling; after leaf i, as many pairs of the top are added as the tree completes there. In the
// last leaf this happens tensor by tensor while backward goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/device/device.h"
#include "common/layout/slice_map.h"
#include "common/layout/tensor_table.h"
#include "common/net/message.h"

namespace pushpull {

class GradientSum {
 public:
  // Called with a slice and its part of the sum, in the order in which they become final.
  using SliceReady = std::function<void(int slice, Payload part)>;

  virtual ~GradientSum() = default;

  // leaves: micro-batches of the node.
  void begin(int64_t leaves);
  // The model writes the next micro-batch's gradient there: memory of the model.
  std::span<float> leaf();
  // In the node's last micro-batch: backward has finished this tensor. Sums it and gives out
  // slices.
  void tensor_ready(size_t tensor, const SliceReady& ready);
  // The same for all tensors, the last one first.
  void all_ready(const SliceReady& ready);
  bool in_last_leaf() const { return next_leaf_ + 1 == leaves_; }
  // The micro-batch is done. After the last one the sum is complete.
  void end_leaf();
  // After the last leaf: gives out the next slice that tensor_ready could not yet; false: there was
  // none.
  virtual bool give_next(const SliceReady& /*ready*/) { return false; }
  void finish(const SliceReady& ready) {
    while (give_next(ready)) {
    }
  }

  // The whole sum in host memory, after `finish`, where it is there. Valid until `begin`.
  virtual std::span<const float> sum() const = 0;
  // A slice that was given out, in host memory.
  virtual Payload on_host(const Payload& part) const { return part; }
  // Nothing in a slice that was given out is NaN or infinite.
  virtual bool finite(int slice, const Payload& part) const = 0;

  // Notes from here on when slices are copied from a device, if they are.
  virtual void keep_times() {}
  // Times of a slice that was given out: seconds since `clock`.
  struct Copied {
    double begin_s = 0.0;
    double end_s = 0.0;
  };
  virtual Copied copied(int /*slice*/, const device::Event& /*clock*/) const { return {}; }

 protected:
  GradientSum(const TensorTable& table, const SliceMap& map);

  const SliceMap& map() const { return map_; }
  size_t total() const { return static_cast<size_t>(total_); }
  // The sum, once the last leaf has ended.
  const float* top() const { return stack_.back().get(); }

  virtual void begin_node() {}
  // A place for the next leaf. All that was added or given out before has been asked for already.
  virtual std::shared_ptr<float[]> take() = 0;
  // The calls that follow read this tensor of the latest leaf.
  virtual void begin_tensor(size_t /*tensor*/) {}
  // left + right -> right, elements [range)
  virtual void add(const float* left, float* right, Range range) = 0;
  // This slice of the sum is final.
  virtual void slice_done(int slice, const std::shared_ptr<float[]>& sum,
                          const SliceReady& ready) = 0;

 private:
  int64_t total_;
  SliceMap map_;
  std::vector<Range> tensor_elements_;
  std::vector<int> tensors_in_slice_;
  std::vector<int> missing_;  // tensors of the slice that are not final yet
  int64_t leaves_ = 0;
  int64_t next_leaf_ = 0;
  std::vector<int> merges_;  // after each leaf
  std::vector<std::shared_ptr<float[]>> stack_;
};

// In host memory. memory: where gradients are to lie; they are sent from there.
std::unique_ptr<GradientSum> make_host_sum(const TensorTable& table, const SliceMap& map,
                                           FloatAllocator memory = heap_floats);

}  // namespace pushpull
