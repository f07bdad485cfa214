// One update of a range of the flat vector, in one pass: TreeSum adds the partial gradients along
// the fixed tree, block by block, so that sums stay in the cache; RangeUpdate initialises and
// updates the range, each tensor in it by its own rule, with its own factor of the learning rate
// and its own weight decay, if it has them. Servers have a RangeUpdate for each slice; workers that
// update by themselves have one for the whole vector. Holds no weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/layout/fixed_tree.h"
#include "common/layout/tensor_table.h"
#include "common/update/codec.h"
#include "common/update/optimizer_options.h"
#include "common/update/trust_ratio.h"

namespace pushpull {

struct RuleSegment;
struct SumHalves;
struct UpdateContext;

// The sum of the gradients of the micro-batches `range`, of a length that the caller knows.
// Borrowed.
struct TreePart {
  Range range;
  const float* floats = nullptr;      // f32; with a codec, the encoded slice
  const SliceCodec* codec = nullptr;  // layout of an encoded slice that `fits`; null if plain
};

// The order in which parts are summed (merge_plan). Recomputed only when the parts differ from the
// last ones, since slices of one step mostly arrive in the same parts.
class MergePlan {
 public:
  void begin() { nodes_.clear(); }
  void add(Range node) { nodes_.push_back(node); }
  // Accepts a single part, or ascending nodes that cover the tree over `leaves` leaves. Throws
  // Error(kProtocol) otherwise.
  void make(int64_t leaves);
  const std::vector<int>& merges() const { return merges_; }

 private:
  std::vector<Range> nodes_;
  std::vector<Range> planned_;  // the nodes that merges_ belongs to
  int64_t leaves_ = 0;
  std::vector<int> merges_;
};

// Not thread-safe.
class TreeSum {
 public:
  static constexpr int64_t kStride = 4096;  // elements summed at once

  // parts, leaves: see MergePlan.
  TreeSum(std::vector<TreePart> parts, int64_t leaves);
  // Holds no parts until `reset`.
  TreeSum() = default;

  // Reuses the object for other parts; allocates nothing while steps are alike.
  void begin() { parts_.clear(); }
  void add(TreePart part) { parts_.push_back(part); }
  void reset(int64_t leaves);

  // Returns the sum over elements [lo, lo + n), n at most kStride; valid until the next call. With
  // a codec the elements must be whole blocks.
  const float* block(int64_t lo, int64_t n);
  // Returns the same without its last addition, so that exactly two parts are read in place.
  SumHalves halves(int64_t lo, int64_t n);

 private:
  float* scratch(size_t depth);

  std::vector<TreePart> parts_;
  MergePlan plan_;
  std::vector<std::vector<float>> scratch_;  // by depth of the stack
  std::vector<const float*> stack_;
};

// The parameters of one update.
struct UpdateInfo {
  double learning_rate = 0.0;  // of the step, not yet multiplied by `share`
  double divisor = 1.0;        // micro-batches in the sum
  double share = 1.0;          // divisor / micro-batches of a step
  double clip = 1.0;           // factor of the gradient
  // The sum is one of weight changes (start minus end of a round of local:H): running statistics
  // change by their mean; trainable weights use it as the gradient, all with the same rate: those of
  // the tensors have shaped the changes.
  bool changes = false;
  double delay_compensation = 0.0;  // lambda, see common/update/delay_compensation.h; 0 = off
  bool stream = false;              // write weights with non-temporal stores (common/base/simd.h)
  // Trust ratio of each tensor of the table, a factor of its learning rate. Borrowed. Empty: all 1.
  std::span<const double> trust = {};
};

// Constant after construction; thread-safe.
class RangeUpdate {
 public:
  // elements: of the flat vector. All indices below are relative to its first element.
  RangeUpdate(const TensorTable& table, Range elements, const OptimizerOptions& optimizer);

  int64_t size() const { return size_; }
  size_t state_vectors() const { return optimizer_states_ + (averages() ? 1 : 0); }
  // Returns true if the last state vector is the average of the weights.
  bool averages() const { return optimizer_.ema > 0.0; }

  // Fills the range by the tensors' init rules.
  //   out: size() floats.
  void initialise(uint64_t seed, float* out) const;

  // Applies one update to the elements `stride`.
  //   before, out, state[i]: point to the range's first element; out may equal before.
  //   sum: gradient sum; points to element stride.lo.
  //   updates: number of updates of the range including this one.
  //   read: the weights that the gradient was computed on, with the layout of `before`, for delay
  //     compensation; null without it.
  void apply(Range stride, const UpdateInfo& info, int64_t updates, const float* before,
             SumHalves sum, std::span<float* const> state, float* out,
             const float* read = nullptr) const;

  // Appends the rules that `apply` would use, in order, for a device that applies them itself.
  //   has_read: whether `read` would be given.
  void add_rules(const UpdateInfo& info, int64_t updates, bool has_read,
                 std::vector<RuleSegment>& out) const;

  // Returns the sum of squares of the gradient (sum / divisor) over one block of at most
  // kBlockElements, without running statistics.
  //   sum: points to element block.lo.
  double squares(Range block, const float* sum, double divisor) const;
  // Returns the same over the whole range: blocks are added along the fixed tree
  // (common/update/norm.h).
  double all_squares(const float* sum, double divisor) const;

  // ---- trust ratios, under an optimizer that scales by tensor ----

  // Returns the number of pieces into which blocks cut the tensors that have a ratio.
  int64_t trust_pieces() const { return trust_pieces_; }
  // Computes the squares of the block's pieces, for the update that `apply` would make. Changes
  // nothing.
  //   block: at most kBlockElements.
  //   sum: points to element block.lo; before, state[i]: to the range's first element.
  //   out: squares of all pieces.
  void trust_squares(Range block, const UpdateInfo& info, int64_t updates, const float* before,
                     const float* sum, std::span<const float* const> state,
                     TrustSquares* out) const;
  // Sums the squares of all pieces and appends the parts of each tensor.
  //   blocks: of the range; total_blocks: of the whole vector.
  void add_trust_parts(std::span<const TrustSquares> squares, Range blocks, int64_t total_blocks,
                       std::vector<TrustPart>& out) const;

 private:
  // The settings of tensors that are updated alike.
  struct Group {
    OptimizerOptions options;
    OptimizerOptions of_changes;  // under UpdateInfo::changes
    double lr_scale = 1.0;

    friend bool operator==(const Group&, const Group&) = default;
  };
  // The part of a tensor within the range.
  struct Segment {
    Range elements;
    size_t index = 0;   // of the tensor in its table
    int64_t first = 0;  // the tensor's element at elements.lo
    TensorInfo tensor;
    size_t group = 0;          // index in groups_
    int64_t first_piece = -1;  // of those with a trust ratio; -1: it has none
  };

  size_t group_of(const TensorInfo& tensor);
  const OptimizerOptions& options_of(const Segment& segment, const UpdateInfo& info) const {
    const Group& group = groups_[segment.group];
    return info.changes ? group.of_changes : group.options;
  }
  double rate_of(const Segment& segment, const UpdateInfo& info) const {
    const double rate =
        info.learning_rate * (info.changes ? 1.0 : groups_[segment.group].lr_scale) * info.share;
    return info.trust.empty() ? rate : rate * info.trust[segment.index];
  }
  void move(const OptimizerOptions& options, const UpdateContext& context, Range elements,
            const float* before, SumHalves sum, std::span<float* const> state, float* out) const;
  // Averages the weights of a segment that an update has written.
  void add_to_average(const Segment& segment, Range elements, int64_t updates, const float* weights,
                      float* average) const;
  void move_unlike(const Segment& segment, const UpdateInfo& info, Range elements,
                   const UpdateContext& context, const float* before, SumHalves sum,
                   std::span<float* const> state, float* out, const float* read) const;

  int64_t size_;
  OptimizerOptions optimizer_;
  size_t optimizer_states_;
  std::vector<Group> groups_;
  std::vector<Segment> segments_;
  int64_t trust_pieces_ = 0;
};

// Returns the trust ratios of an update of the whole vector, for UpdateInfo::trust; empty if the
// optimizer does not scale by tensor.
//   rules: of the whole vector, with this optimizer.
//   before, sum, state[i]: point to the vector's first element.
std::vector<double> trust_of_update(const TensorTable& table, const OptimizerOptions& optimizer,
                                    const RangeUpdate& rules, const UpdateInfo& info,
                                    int64_t updates, const float* before, const float* sum,
                                    std::span<const float* const> state);

}  // namespace pushpull
