// The update rules that servers (and all-reduce workers) apply, one fused pass over a range of the
// flat vector. Stateless functions over caller's memory; any thread; vectorised, same bits at any
// width. Sources: SGD, momentum, Nesterov as torch.optim.SGD; Adam (Kingma & Ba, arXiv 1412.6980);
// AdamW (Loshchilov & Hutter, arXiv 1711.05101).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/update/optimizer_rule.h"

namespace pushpull {

enum class OptimizerKind { kSgd, kMomentum, kNesterov, kAdam, kAdamW };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kSgd;
  double momentum = 0.9;      // momentum, nesterov
  double beta1 = 0.9;         // adam, adamw
  double beta2 = 0.999;       // adam, adamw
  double epsilon = 1e-8;      // adam, adamw
  double weight_decay = 0.0;  // L2 in the gradient; decoupled in adamw

  friend bool operator==(const OptimizerOptions&, const OptimizerOptions&) = default;
};

// Throws Error(kUsage) that names the text.
OptimizerKind parse_optimizer(const std::string& text);
std::string to_string(OptimizerKind kind);

// Names of the state vectors, as PyTorch calls them: {}, {"momentum_buffer"}, {"exp_avg",
// "exp_avg_sq"}.
const std::vector<std::string>& state_names(OptimizerKind kind);

// What one update needs besides the vectors.
//   learning_rate: of the step's schedule, already multiplied by the push's share of the global
//   batch. divisor: number of micro-batches in the gradient sum; g = sum / divisor. clip: g is
//   multiplied by it when it is not 1 (clip_norm / norm, at most 1). updates: how many updates the
//   range has had, this one included (Adam's t, from 1). stream: w_out is written past the cache,
//   see common/base/simd.h; the caller ends it.
struct UpdateContext {
  double learning_rate = 0.0;
  double divisor = 1.0;
  double clip = 1.0;
  int64_t updates = 1;
  bool stream = false;
};

// A sum whose last addition is left to its reader: left + right, or left alone where right is null.
struct SumHalves {
  // a sum that is done; not explicit, for it is the usual one
  SumHalves(const float* sum) : left(sum) {}  // NOLINT(google-explicit-constructor)
  SumHalves(const float* l, const float* r) : left(l), right(r) {}
  SumHalves operator+(int64_t elements) const {
    return {left + elements, right == nullptr ? nullptr : right + elements};
  }

  const float* left;
  const float* right = nullptr;
};

// What update_range and average_range do to each element, for who does it elsewhere (a device).
ElementRule optimizer_rule(const OptimizerOptions& options, const UpdateContext& context);
ElementRule average_rule(double momentum, double share, double divisor);

// w_out = rule(w_in, g, state); state changes in place.
//   gradient_sum, w_in, w_out: n floats; w_out may equal w_in where it is not streamed, else
//   disjoint.
//   state: state_names(kind).size() pointers to n floats each, zero before the first update.
void update_range(const OptimizerOptions& options, const UpdateContext& context, size_t n,
                  const float* w_in, SumHalves gradient_sum, std::span<float* const> state,
                  float* w_out);

// Running statistic: r_out = keep * r_in + (1 - keep) * sum / divisor, keep = (1 - m)^share
// computed in double; share = micro-batches in the push / micro-batches of a step.
void average_range(double momentum, double share, double divisor, size_t n, const float* r_in,
                   const float* sum, float* r_out);

}  // namespace pushpull
