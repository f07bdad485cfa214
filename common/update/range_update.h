// How a range of the flat vector is filled and moved: each tensor that lies in it by its own rule.
// Servers have one for each slice, workers that update by themselves one for the whole vector. Owns
// no weights. Constant after construction; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/layout/fixed_tree.h"
#include "common/layout/tensor_table.h"
#include "common/update/optimizer.h"

namespace pushpull {

// How a sum of gradients moves the weights.
struct UpdateInfo {
  double learning_rate = 0.0;  // of the step, not yet scaled by `share`
  double divisor = 1.0;        // micro-batches in the sum
  double share = 1.0;          // of the global batch: divisor / micro-batches of a step
  double clip = 1.0;           // factor of the gradient
  // The sum is one of changes, start minus end, of weights that have moved elsewhere (local:H):
  // running statistics move by the mean change, trainable weights take it for a gradient.
  bool changes = false;
  double delay_compensation = 0.0;  // lambda, see common/update/delay_compensation.h; 0: none
  bool stream = false;              // weights are written past the cache (common/base/simd.h)
};

// Elements of a range that move by one rule.
struct RuleSegment {
  Range elements;
  ElementRule rule;
  bool counts = false;  // in the norm of the gradient
};

class RangeUpdate {
 public:
  // elements: of the flat vector. Everything below counts from its first one.
  RangeUpdate(const TensorTable& table, Range elements, const OptimizerOptions& optimizer);

  int64_t size() const { return size_; }
  size_t state_vectors() const { return state_names(optimizer_.kind).size(); }

  // Fills the range by the tensors' init rules.
  //   out: size() floats.
  void initialise(uint64_t seed, float* out) const;

  // Moves the elements `stride` by one update.
  //   before, out, state[i]: the range's first element; out may be before.
  //   sum: of gradients, its first element is that of stride.lo.
  //   updates: that the range has had, this one included.
  //   read: the weights that the gradient was computed on, like before, for delay compensation;
  //   null: none.
  void apply(Range stride, const UpdateInfo& info, int64_t updates, const float* before,
             SumHalves sum, std::span<float* const> state, float* out,
             const float* read = nullptr) const;

  // What `apply` does, for who does it elsewhere (a device): appends the range's segments, in
  // order.
  //   has_read: `read` is given.
  void add_rules(const UpdateInfo& info, int64_t updates, bool has_read,
                 std::vector<RuleSegment>& out) const;

  // Squares of the gradient (sum / divisor) over one block of at most kBlockElements; running
  // statistics do not count.
  //   sum: its first element is that of block.lo.
  double squares(Range block, const float* sum, double divisor) const;
  // The same over the whole range, blocks added along the fixed tree (common/update/norm.h).
  double all_squares(const float* sum, double divisor) const;

 private:
  // The part of a tensor that lies in the range.
  struct Segment {
    Range elements;
    size_t index = 0;   // of the tensor in its table
    int64_t first = 0;  // element of the tensor that the segment begins with
    TensorInfo tensor;
  };

  void move(const UpdateContext& context, Range elements, const float* before, SumHalves sum,
            std::span<float* const> state, float* out) const;
  void move_unlike(const Segment& segment, const UpdateInfo& info, Range elements,
                   const UpdateContext& context, const float* before, SumHalves sum,
                   std::span<float* const> state, float* out, const float* read) const;

  int64_t size_;
  OptimizerOptions optimizer_;
  std::vector<Segment> segments_;
};

}  // namespace pushpull
