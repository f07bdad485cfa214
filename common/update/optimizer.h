// The update rules that servers (and all-reduce workers) apply, in one fused pass over a range of
// the flat vector. Stateless functions over the caller's memory; any thread; vectorised, the same
// bits at any width. Sources: torch.optim.SGD for SGD, momentum and Nesterov; Adam (Kingma & Ba,
// arXiv 1412.6980); AdamW (Loshchilov & Hutter, arXiv 1711.05101); torch.optim.RMSprop and Adagrad
// (Duchi et al., JMLR 12, 2011); Lion (Chen et al., arXiv 2302.06675); LAMB (You et al., arXiv
// 1904.00962, Algorithm 2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/layout/fixed_tree.h"
#include "common/update/optimizer_options.h"
#include "common/update/optimizer_rule.h"

namespace pushpull {

// The scalars of one update.
//   learning_rate: the schedule's rate for the step, times the push's share of the global batch and
//     the tensor's trust ratio.
//   divisor: number of micro-batches in the gradient sum; g = sum / divisor.
//   clip: factor of g, clip_norm / norm and at most 1; 1 if gradients are not clipped.
//   updates: number of updates of the range including this one (Adam's t, from 1).
//   stream: write w_out with non-temporal stores (common/base/simd.h); the caller calls
//     end_streams().
struct UpdateContext {
  double learning_rate = 0.0;
  double divisor = 1.0;
  double clip = 1.0;
  int64_t updates = 1;
  bool stream = false;
};

// A sum without its last addition, left to the reader: left + right, or left alone if right is
// null.
struct SumHalves {
  // implicit, because a finished sum is the usual case
  SumHalves(const float* sum) : left(sum) {}  // NOLINT(google-explicit-constructor)
  SumHalves(const float* l, const float* r) : left(l), right(r) {}
  SumHalves operator+(int64_t elements) const {
    return {left + elements, right == nullptr ? nullptr : right + elements};
  }

  const float* left;
  const float* right = nullptr;
};

// Elements of a range with one rule.
struct RuleSegment {
  Range elements;
  ElementRule rule;
  bool counts = false;  // true if they count in the gradient's norm
  bool scaled = false;  // true if their tensor has a trust ratio
};

// Return the rules that update_range and average_range apply to each element, for a device that
// applies them itself.
ElementRule optimizer_rule(const OptimizerOptions& options, const UpdateContext& context);
ElementRule average_rule(double momentum, double share, double divisor);

// w_out = rule(w_in, g, state); updates state in place.
//   gradient_sum, w_in, w_out: n floats. w_out may equal w_in unless it is streamed; otherwise
//     disjoint.
//   state: state_names(kind).size() pointers to n floats each, zero before the first update.
void update_range(const OptimizerOptions& options, const UpdateContext& context, size_t n,
                  const float* w_in, SumHalves gradient_sum, std::span<float* const> state,
                  float* w_out);

// Computes lamb's directions u: update_range would set w to w - learning_rate u. Changes no state.
//   w, gradient_sum, state[0], state[1], out: n floats; out overlaps none of the others.
void lamb_directions(const OptimizerOptions& options, const UpdateContext& context, size_t n,
                     const float* w, const float* gradient_sum, std::span<const float* const> state,
                     float* out);

// Updates an average of weights: average = decay average + (1 - decay) w.
void average_weights(double decay, size_t n, const float* w, float* average);

// Updates a running statistic: r_out = keep * r_in + (1 - keep) * sum / divisor, where keep = (1 -
// m)^share, computed in double, and share = micro-batches in the push / micro-batches of a step.
void average_range(double momentum, double share, double divisor, size_t n, const float* r_in,
                   const float* sum, float* r_out);

}  // namespace pushpull
