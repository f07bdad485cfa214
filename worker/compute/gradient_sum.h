// Sums the gradients of a node's micro-batches along the fixed tree (P1), where the model computes
// them, and passes on each slice as soon as the last backward pass has finished it.
// Single-threaded.
//
// The leaves of node [lo, hi) come in order. A stack holds the sums that wait for their right
// sibling. After leaf i, the top pairs are added, as many as the tree completes there; in the last
// leaf this happens tensor by tensor while backward runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/device/device.h"
#include "common/layout/slice_map.h"
#include "common/net/message.h"
#include "models/model.h"

namespace pushpull {

struct TensorTable;

// Finds micro-batches with a loss or gradient that is not finite and replaces them by zeros
// (on-bad-gradient = skip), one micro-batch at a time: the bits of a sum do not depend on how
// micro-batches are spread over workers. Single-threaded.
class SkippedGradients {
 public:
  // Borrows `table`.
  explicit SkippedGradients(const TensorTable& table) : table_(table) {}

  struct MicroBatch {
    std::span<float> gradient;  // flat vector
    float loss = 0.0F;
    size_t place = 0;  // index of its loss in the push
  };
  // Returns the loss, or 0 if the loss or the gradient is not finite. In that case clears the
  // gradient and sets the batch statistics to the running ones of `weights`, so that their average
  // does not change.
  //   needed: called for each of those tensors before it is read; may be empty; may throw.
  float take(const MicroBatch& computed, std::span<const float> weights,
             const WeightsNeeded& needed);
  // Returns the micro-batches skipped since the last call.
  std::vector<wire::BadGradient> take_found() { return std::exchange(found_, {}); }

 private:
  const TensorTable& table_;
  std::vector<wire::BadGradient> found_;
};

// Returns the elements of each tensor.
std::vector<Range> elements_of(const TensorTable& table);

// Counts the tensors of each slice that are final. Single-threaded.
class SliceProgress {
 public:
  // tensors: their elements; adjacent, and whole slices together.
  SliceProgress(std::vector<Range> tensors, const SliceMap& map);

  const SliceMap& map() const { return map_; }
  // Returns the elements of a tensor, and of all.
  const Range& elements(size_t tensor) const { return elements_.at(tensor); }
  const std::vector<Range>& tensors() const { return elements_; }
  Range all() const {
    return elements_.empty() ? Range{} : Range{elements_.front().lo, elements_.back().hi};
  }
  // Begins: no tensor is final.
  void begin() { missing_ = tensors_in_slice_; }
  // Returns the slices that this tensor completes. They are adjacent, since only the tensor's first
  // and last slice can have other tensors.
  Range done(size_t tensor);

 private:
  SliceMap map_;
  std::vector<Range> elements_;
  std::vector<int> tensors_in_slice_;
  std::vector<int> missing_;  // per slice: tensors that are not final yet
};

// Returns the slice `slice` of a flat vector as a payload that keeps it.
Payload slice_of(const std::shared_ptr<float[]>& flat, const SliceMap& map, int slice);

// Returns, for each leaf of a node of so many, how many pairs on top of the stack are added after it.
std::vector<int> merges_of(int64_t leaves);

// Computes right = left + right for the elements of `range`. Thread-safe.
void add_range(const float* left, float* right, Range range);

class GradientSum {
 public:
  // Called with a slice and its part of the sum, in the order in which slices become final.
  using SliceReady = std::function<void(int slice, Payload part)>;

  virtual ~GradientSum() = default;

  // Begins a node of `leaves` micro-batches.
  void begin(int64_t leaves);
  // Returns where the model writes the gradient of the next micro-batch, in the model's memory.
  std::span<float> leaf() { return leaf(take()); }
  // The same for a buffer that `take` has returned, if gradients of several micro-batches are begun
  // before the first one ends.
  std::span<float> leaf(std::shared_ptr<float[]> buffer);
  // Returns a buffer for a leaf. All earlier additions have been issued by then.
  virtual std::shared_ptr<float[]> take() = 0;
  // Sums a tensor that backward has finished and passes on the slices that this completes. Only in
  // the node's last micro-batch.
  void tensor_ready(size_t tensor, const SliceReady& ready);
  // Calls tensor_ready for all tensors, from the last to the first.
  void all_ready(const SliceReady& ready);
  bool in_last_leaf() const { return next_leaf_ + 1 == leaves_; }
  // Gives an upper bound of the absolute values of a tensor in the current micro-batch (infinity or
  // NaN if it is unknown), before tensor_ready. For a bounded tensor `finite` need not read the sum.
  // For all micro-batches of a node or for none.
  virtual void bound(size_t /*tensor*/, double /*bound*/) {}
  // Ends the micro-batch. After the last one the sum is complete.
  void end_leaf();
  // Passes on the next slice that tensor_ready could not. Returns false if there is none. Call
  // after the last leaf.
  virtual bool give_next(const SliceReady& /*ready*/) { return false; }
  void finish(const SliceReady& ready) {
    while (give_next(ready)) {
    }
  }

  // Returns the whole sum, after finish() and only if it is in host memory. Valid until begin().
  virtual std::span<const float> sum() const = 0;
  // Returns `part`, a slice that was passed on, in host memory.
  virtual Payload on_host(const Payload& part) const { return part; }
  // Returns false if a slice that was passed on contains NaN or infinity.
  virtual bool finite(int slice, const Payload& part) const = 0;

  // Records from now on when slices are copied from a device.
  virtual void keep_times() {}
  // Times of a slice that was passed on, in seconds since `clock`.
  struct Copied {
    double begin_s = 0.0;
    double end_s = 0.0;
  };
  virtual Copied copied(int /*slice*/, const device::Event& /*clock*/) const { return {}; }

 protected:
  // tensors: as SliceProgress.
  GradientSum(std::vector<Range> tensors, const SliceMap& map);

  const SliceMap& map() const { return slices_.map(); }
  const std::vector<Range>& tensor_elements() const { return slices_.tensors(); }
  bool in_first_leaf() const { return next_leaf_ == 0; }
  size_t total() const { return static_cast<size_t>(map().total()); }
  // Returns the sum. Call after the last leaf.
  const float* top() const { return stack_.back().get(); }

  virtual void begin_node() {}
  // Called before add() reads this tensor of the latest leaf.
  virtual void begin_tensor(size_t /*tensor*/) {}
  // Computes right = left + right for the elements of `range`.
  virtual void add(const float* left, float* right, Range range) = 0;
  // Called when these adjacent slices of the sum are final, at least one slice.
  virtual void slices_done(Range slices, const std::shared_ptr<float[]>& sum,
                           const SliceReady& ready) = 0;

 private:
  SliceProgress slices_;
  int64_t leaves_ = 0;
  int64_t next_leaf_ = 0;
  std::vector<int> merges_;  // by leaf
  std::vector<std::shared_ptr<float[]>> stack_;
};

// Makes a sum in host memory. It reads and writes no element outside of the tensors.
//   tensors: as SliceProgress: of a model or of a stage. memory: where gradients are written and sent
//   from.
std::unique_ptr<GradientSum> make_host_sum(std::vector<Range> tensors, const SliceMap& map,
                                           FloatAllocator memory = heap_floats);

// Returns true if none of x[0], ..., x[n - 1] is NaN or infinite. Thread-safe.
bool all_finite(const float* x, int64_t n);

}  // namespace pushpull
