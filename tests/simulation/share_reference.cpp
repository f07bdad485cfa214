#include "tests/simulation/share_reference.h"

#include <array>

#include "common/update/optimizer.h"
#include "common/update/optimizer_options.h"
#include "ps/server/aggregation.h"
#include "ps/server/server.h"

namespace pushpull::sim {

namespace {

// Updates trainable tensors by the optimizer, the others by their running average.
void move(const Toy& toy, const OptimizerOptions& optimizer, const UpdateContext& context,
          const std::vector<float>& sum, std::vector<float>& weights,
          std::vector<std::vector<float>>& slots) {
  for (const TensorInfo& t : toy.table().tensors) {
    float* w = weights.data() + t.offset;
    const float* g = sum.data() + t.offset;
    const auto n = static_cast<size_t>(t.size);
    if (t.rule == UpdateRule::kAverage) {
      average_range(t.average_momentum, 1.0, context.divisor, n, w, g, w);
      continue;
    }
    std::array<float*, 2> here{};
    const size_t used = state_names(optimizer.kind).size();
    for (size_t s = 0; s < used; ++s) here[s] = slots[s].data() + t.offset;
    UpdateContext own = context;
    own.learning_rate *= t.lr_scale;
    own.learning_rate *= trust_ratio(toy, optimizer, t, context, sum, weights, slots);
    update_range(options_for(optimizer, t), own, n, w, g, std::span(here.data(), used), w);
  }
}

}  // namespace

ShareReference::ShareReference(const Job& job, const Toy& toy, const Reference& plain,
                               const Barriers& barriers, int shares)
    : job_(job), toy_(toy), plain_(plain), barriers_(barriers), shares_(shares) {}

FlatState ShareReference::start_of(const Job& job, const Reference& plain, int64_t step) {
  FlatState out = plain.initial(state_names(server_optimizer(job)).size());
  out.step = step;
  out.updates = step;
  return out;
}

Range ShareReference::share_of(int64_t lo) const {
  int index = 0;
  while (share_range(index, shares_, job_.micro_batches()).lo != lo) ++index;
  return share_range(index, shares_, job_.micro_batches());
}

std::vector<float> ShareReference::tree_sum(const std::vector<std::vector<float>>& parts,
                                            Range node) const {
  if (node.size() == 1) return parts[static_cast<size_t>(node.lo)];
  int64_t left = 1;
  while (left * 2 < node.size()) left *= 2;
  std::vector<float> out = tree_sum(parts, {node.lo, node.lo + left});
  const std::vector<float> right = tree_sum(parts, {node.lo + left, node.hi});
  for (size_t i = 0; i < out.size(); ++i) out[i] = out[i] + right[i];
  return out;
}

void ShareReference::backup_step(FlatState& state, const std::vector<int64_t>& set) const {
  std::vector<std::vector<float>> parts;
  int64_t micro_batches = 0;
  const std::vector<float> pulled = plain_.pulled(state.weights);
  for (const int64_t lo : set) {
    const Range share = share_of(lo);
    parts.push_back(plain_.gradient_sum(pulled, state.step, share));
    micro_batches += share.size();
  }
  const std::vector<float> sum = tree_sum(parts, {0, std::ssize(parts)});
  UpdateContext context;
  context.learning_rate = learning_rate(job_.schedule, state.step, job_.steps);
  context.divisor = static_cast<double>(micro_batches);
  context.clip = plain_.clip_of(sum, context.divisor);
  context.updates = ++state.updates;
  move(toy_, job_.optimizer, context, sum, state.weights, state.slots);
  average(toy_, job_.optimizer, state);
  ++state.step;
}

std::vector<float> ShareReference::local_change(const std::vector<float>& start, int share,
                                                int64_t first, int64_t last) {
  const Range range = share_range(share, shares_, job_.micro_batches());
  const auto k = static_cast<float>(range.size());
  Inner& inner = inner_[share];
  if (inner.updates == 0) {
    inner.slots.assign(state_names(job_.optimizer.kind).size(), std::vector<float>(start.size()));
  }
  std::vector<float> weights = start;
  for (int64_t step = first; step < last; ++step) {
    const std::vector<float> sum = plain_.gradient_sum(weights, step, range);
    UpdateContext context;
    context.learning_rate = learning_rate(job_.schedule, step, job_.steps);
    context.divisor = static_cast<double>(range.size());
    context.clip = plain_.clip_of(sum, context.divisor);
    context.updates = ++inner.updates;
    move(toy_, job_.optimizer, context, sum, weights, inner.slots);
  }
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = k * (start[i] - weights[i]);
  return weights;
}

void ShareReference::local_round(FlatState& state) {
  const int64_t end = barriers_.round_end(state.step);
  std::vector<std::vector<float>> changes;
  const std::vector<float> pulled = plain_.pulled(state.weights);
  for (int share = 0; share < shares_; ++share) {
    changes.push_back(local_change(pulled, share, state.step, end));
  }
  const std::vector<float> sum = tree_sum(changes, {0, shares_});
  const auto m = static_cast<float>(job_.micro_batches());
  const auto lr = static_cast<float>(job_.outer_lr);
  const auto momentum = static_cast<float>(job_.outer_momentum);
  for (const TensorInfo& t : toy_.table().tensors) {
    for (auto i = static_cast<size_t>(t.offset); i < static_cast<size_t>(t.offset + t.size); ++i) {
      const float delta = sum[i] / m;
      float by = lr * delta;
      if (t.rule == UpdateRule::kAverage) {
        by = delta;
      } else if (job_.outer_momentum > 0) {
        float& buffer = state.slots[0][i];
        buffer = momentum * buffer + delta;
        by = lr * (delta + momentum * buffer);
      }
      state.weights[i] = state.weights[i] - by;
    }
  }
  state.step = end;
  ++state.updates;
  average(toy_, job_.optimizer, state);
}

std::map<int64_t, FlatState> ShareReference::train(
    FlatState state, const std::map<int64_t, std::vector<int64_t>>& sets) {
  std::map<int64_t, FlatState> out;
  while (state.step < barriers_.end_step) {
    if (job_.strategy.kind == StrategyKind::kLocal) {
      local_round(state);
    } else {
      if (!sets.contains(state.step)) break;
      backup_step(state, sets.at(state.step));
    }
    out[state.step] = state;
  }
  return out;
}

}  // namespace pushpull::sim
