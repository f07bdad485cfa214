#include "common/update/range_update.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "common/base/error.h"
#include "common/base/random.h"
#include "common/base/simd.h"
#include "common/layout/slice_map.h"
#include "common/update/delay_compensation.h"
#include "common/update/norm.h"
#include "common/update/optimizer.h"

namespace pushpull {

namespace {

PUSHPULL_SIMD void add_floats(const float* a, const float* b, int64_t n, float* out) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

PUSHPULL_SIMD void divide_floats(const float* x, float divisor, int64_t n, float* out) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] / divisor;
}

Range blocks_of(Range elements) {
  return {elements.lo / kBlockElements, (elements.hi + kBlockElements - 1) / kBlockElements};
}

}  // namespace

// ---- TreeSum ----

void MergePlan::make(int64_t leaves) {
  if (!merges_.empty() && leaves == leaves_ && nodes_ == planned_) return;
  merges_ = nodes_.size() == 1 ? std::vector<int>{0} : merge_plan(nodes_, leaves);
  if (merges_.empty()) {
    throw Error(ErrorCode::kProtocol, "[push] the partial sums do not cover the range exactly");
  }
  planned_ = nodes_;
  leaves_ = leaves;
}

TreeSum::TreeSum(std::vector<TreePart> parts, int64_t leaves) : parts_(std::move(parts)) {
  reset(leaves);
}

void TreeSum::reset(int64_t leaves) {
  plan_.begin();
  for (const TreePart& part : parts_) plan_.add(part.range);
  plan_.make(leaves);
}

float* TreeSum::scratch(size_t depth) {
  if (scratch_.size() <= depth) scratch_.resize(depth + 1);
  scratch_[depth].resize(kStride);
  return scratch_[depth].data();
}

SumHalves TreeSum::halves(int64_t lo, int64_t n) {
  PP_ASSERT(n <= kStride);
  stack_.clear();
  for (size_t i = 0; i < parts_.size(); ++i) {
    const TreePart& part = parts_[i];
    if (part.codec != nullptr && !part.codec->plain()) {
      float* decoded = scratch(stack_.size());
      part.codec->decode(reinterpret_cast<const std::byte*>(part.floats), lo, n, decoded);
      stack_.push_back(decoded);
    } else {
      stack_.push_back(part.floats + lo);
    }
    for (int m = 0; m < plan_.merges()[i]; ++m) {
      const float* right = stack_.back();
      stack_.pop_back();
      const bool last = i + 1 == parts_.size() && stack_.size() == 1;
      if (last) return {stack_.back(), right};
      float* out = scratch(stack_.size() - 1);
      add_floats(stack_.back(), right, n, out);
      stack_.back() = out;
    }
  }
  return stack_.front();
}

const float* TreeSum::block(int64_t lo, int64_t n) {
  const SumHalves sum = halves(lo, n);
  if (sum.right == nullptr) return sum.left;
  float* out = scratch(0);  // may hold the left half
  add_floats(sum.left, sum.right, n, out);
  return out;
}

// ---- RangeUpdate ----

RangeUpdate::RangeUpdate(const TensorTable& table, Range elements,
                         const OptimizerOptions& optimizer)
    : size_(elements.size()),
      optimizer_(optimizer),
      optimizer_states_(state_names(optimizer.kind).size()) {
  for (size_t t = 0; t < table.tensors.size(); ++t) {
    const TensorInfo& tensor = table.tensors[t];
    const int64_t lo = std::max(elements.lo, tensor.offset);
    const int64_t hi = std::min(elements.hi, tensor.offset + tensor.size);
    if (lo >= hi) continue;
    segments_.push_back(
        {{lo - elements.lo, hi - elements.lo}, t, lo - tensor.offset, tensor, group_of(tensor)});
    Segment& segment = segments_.back();
    if (!has_trust_ratio(optimizer_, tensor)) continue;
    segment.first_piece = trust_pieces_;
    trust_pieces_ += blocks_of(segment.elements).size();
  }
}

size_t RangeUpdate::group_of(const TensorInfo& tensor) {
  Group group{optimizer_, optimizer_, tensor.lr_scale};
  if (optimizer_.no_decay.contains(tensor)) {
    group.options.weight_decay = group.of_changes.weight_decay = 0.0;
  }
  if (tensor.weight_decay) group.options.weight_decay = *tensor.weight_decay;
  const auto found = std::ranges::find(groups_, group);
  const auto index = static_cast<size_t>(found - groups_.begin());
  if (found == groups_.end()) groups_.push_back(std::move(group));
  return index;
}

void RangeUpdate::initialise(uint64_t seed, float* out) const {
  for (const Segment& segment : segments_) {
    float* to = out + segment.elements.lo;
    const auto count = static_cast<uint64_t>(segment.elements.size());
    const auto index = static_cast<uint32_t>(segment.index);
    const auto first = static_cast<uint64_t>(segment.first);
    const float value = segment.tensor.value;
    switch (segment.tensor.init) {
      case InitKind::kConstant:
        std::fill_n(to, count, value);
        break;
      case InitKind::kUniform:
        fill_uniform(seed, RandomStream::kInit, index, first, value, count, to);
        break;
      case InitKind::kNormal:
        fill_normal(seed, RandomStream::kInit, index, first, value, count, to);
        break;
    }
  }
}

// sum: points to element elements.lo; all other pointers to the range's first element.
void RangeUpdate::move(const OptimizerOptions& options, const UpdateContext& context,
                       Range elements, const float* before, SumHalves sum,
                       std::span<float* const> state, float* out) const {
  std::array<float*, kMaxStateVectors> here{};
  for (size_t s = 0; s < state.size(); ++s) here[s] = state[s] + elements.lo;
  update_range(options, context, static_cast<size_t>(elements.size()), before + elements.lo, sum,
               std::span(here.data(), state.size()), out + elements.lo);
}

void RangeUpdate::apply(Range stride, const UpdateInfo& info, int64_t updates, const float* before,
                        SumHalves sum, std::span<float* const> state, float* out,
                        const float* read) const {
  PP_ASSERT(state.size() == state_vectors());
  float* const average = averages() ? state.back() : nullptr;
  state = state.first(optimizer_states_);
  UpdateContext context{0.0, info.divisor, info.clip, updates, info.stream};
  for (const Segment& segment : segments_) {
    const Range here{std::max(stride.lo, segment.elements.lo),
                     std::min(stride.hi, segment.elements.hi)};
    if (here.lo >= here.hi) continue;
    const SumHalves g = sum + (here.lo - stride.lo);
    const bool compensate = read != nullptr && info.delay_compensation != 0.0;
    context.learning_rate = rate_of(segment, info);
    if (segment.tensor.rule == UpdateRule::kOptimizer && !compensate) {
      move(options_of(segment, info), context, here, before, g, state, out);
    } else {
      move_unlike(segment, info, here, context, before, g, state, out, read);
    }
    if (average != nullptr) add_to_average(segment, here, updates, out, average);
  }
}

// Running statistics are averages already: they stay those of the model.
void RangeUpdate::add_to_average(const Segment& segment, Range elements, int64_t updates,
                                 const float* weights, float* average) const {
  const float* const from = weights + elements.lo;
  float* const to = average + elements.lo;
  if (updates == 1 || segment.tensor.rule != UpdateRule::kOptimizer) {
    std::copy_n(from, elements.size(), to);
  } else {
    average_weights(optimizer_.ema, static_cast<size_t>(elements.size()), from, to);
  }
}

// Handles the rare cases block by block, on a sum computed first.
void RangeUpdate::move_unlike(const Segment& segment, const UpdateInfo& info, Range elements,
                              const UpdateContext& context, const float* before, SumHalves sum,
                              std::span<float* const> state, float* out, const float* read) const {
  std::array<float, kBlockElements> whole{};
  std::array<float, kBlockElements> mean{};
  for (int64_t lo = elements.lo; lo < elements.hi; lo += kBlockElements) {
    const int64_t count = std::min(kBlockElements, elements.hi - lo);
    const auto n = static_cast<size_t>(count);
    const SumHalves halves = sum + (lo - elements.lo);
    const float* g = halves.left;
    if (halves.right != nullptr) {
      for (size_t i = 0; i < n; ++i) whole[i] = halves.left[i] + halves.right[i];
      g = whole.data();
    }
    if (segment.tensor.rule == UpdateRule::kOptimizer) {
      compensate_delay({info.divisor, info.clip, info.delay_compensation}, n, g, before + lo,
                       read + lo, mean.data());
      // the optimizer gets the compensated mean gradient instead of the sum
      UpdateContext of_mean = context;
      of_mean.divisor = 1.0;
      of_mean.clip = 1.0;
      move(options_of(segment, info), of_mean, {lo, lo + count}, before, mean.data(), state, out);
    } else if (info.changes) {
      update_range(OptimizerOptions{}, {1.0, info.divisor, 1.0, context.updates}, n, before + lo, g,
                   {}, out + lo);
    } else {
      average_range(segment.tensor.average_momentum, info.share, info.divisor, n, before + lo, g,
                    out + lo);
    }
  }
}

void RangeUpdate::add_rules(const UpdateInfo& info, int64_t updates, bool has_read,
                            std::vector<RuleSegment>& out) const {
  UpdateContext context{0.0, info.divisor, info.clip, updates};
  const DelayCompensation delay{info.divisor, info.clip, info.delay_compensation};
  const bool compensate = has_read && info.delay_compensation != 0.0;
  if (compensate) context.divisor = context.clip = 1.0;
  const auto trained = [&](const Segment& segment) {
    context.learning_rate = rate_of(segment, info);
    ElementRule rule = optimizer_rule(options_of(segment, info), context);
    rule.compensates = compensate;
    rule.compensation = compensation_scalars(delay);
    return rule;
  };
  const ElementRule change = optimizer_rule({}, {1.0, info.divisor, 1.0, updates});
  // Adam's corrections take longer than the other work on a small tensor: once for each group.
  std::array<std::optional<ElementRule>, 4> known;
  const auto moved = [&](const Segment& segment) {
    if (segment.group >= known.size() || !info.trust.empty()) return trained(segment);
    std::optional<ElementRule>& rule = known[segment.group];
    if (!rule) rule = trained(segment);
    return *rule;
  };
  for (const Segment& segment : segments_) {
    if (segment.tensor.rule == UpdateRule::kOptimizer) {
      out.push_back({segment.elements, moved(segment), true, segment.first_piece >= 0});
      continue;
    }
    out.push_back({segment.elements, change, false});
    if (info.changes) continue;
    out.back().rule = average_rule(segment.tensor.average_momentum, info.share, info.divisor);
  }
}

double RangeUpdate::squares(Range block, const float* sum, double divisor) const {
  PP_ASSERT(block.size() <= kBlockElements);
  std::array<float, kBlockElements> mean{};
  for (const Segment& segment : segments_) {
    if (segment.tensor.rule != UpdateRule::kOptimizer) continue;
    const int64_t first = std::max(block.lo, segment.elements.lo);
    const int64_t last = std::min(block.hi, segment.elements.hi);
    if (first >= last) continue;
    divide_floats(sum + (first - block.lo), static_cast<float>(divisor), last - first,
                  mean.data() + (first - block.lo));
  }
  return block_squares(mean.data(), block.size());
}

void RangeUpdate::trust_squares(Range block, const UpdateInfo& info, int64_t updates,
                                const float* before, const float* sum,
                                std::span<const float* const> state, TrustSquares* out) const {
  PP_ASSERT(block.size() <= kBlockElements);
  const UpdateContext context{1.0, info.divisor, info.clip, updates};
  std::array<float, kBlockElements> directions{};
  for (const Segment& segment : segments_) {
    if (segment.first_piece < 0) continue;
    const Range here{std::max(block.lo, segment.elements.lo),
                     std::min(block.hi, segment.elements.hi)};
    if (here.lo >= here.hi) continue;
    std::array<const float*, kMaxStateVectors> at{};
    for (size_t s = 0; s < optimizer_states_; ++s) at[s] = state[s] + here.lo;
    lamb_directions(options_of(segment, info), context, static_cast<size_t>(here.size()),
                    before + here.lo, sum + (here.lo - block.lo),
                    std::span(at.data(), optimizer_states_), directions.data());
    TrustSquares& squares =
        out[segment.first_piece + block.lo / kBlockElements - blocks_of(segment.elements).lo];
    squares.weights = block_squares(before + here.lo, here.size());
    squares.update = block_squares(directions.data(), here.size());
  }
}

void RangeUpdate::add_trust_parts(std::span<const TrustSquares> squares, Range blocks,
                                  int64_t total_blocks, std::vector<TrustPart>& out) const {
  PP_ASSERT(std::ssize(squares) == trust_pieces_);
  for (const Segment& segment : segments_) {
    if (segment.first_piece < 0) continue;
    const Range own = blocks_of(segment.elements);
    pushpull::add_trust_parts(
        static_cast<int>(segment.index),
        squares.subspan(static_cast<size_t>(segment.first_piece), static_cast<size_t>(own.size())),
        blocks.lo + own.lo, blocks, total_blocks, out);
  }
}

std::vector<double> trust_of_update(const TensorTable& table, const OptimizerOptions& optimizer,
                                    const RangeUpdate& rules, const UpdateInfo& info,
                                    int64_t updates, const float* before, const float* sum,
                                    std::span<const float* const> state) {
  if (!scales_by_tensor(optimizer.kind)) return {};
  PP_ASSERT(rules.size() == table.total);
  std::vector<TrustSquares> squares(static_cast<size_t>(rules.trust_pieces()));
  for (int64_t lo = 0; lo < table.total; lo += kBlockElements) {
    const Range block{lo, std::min(lo + kBlockElements, table.total)};
    rules.trust_squares(block, info, updates, before, sum + lo, state, squares.data());
  }
  std::vector<TrustPart> parts;
  const Range blocks = blocks_of({0, table.total});
  rules.add_trust_parts(squares, blocks, blocks.hi, parts);
  return trust_ratios(table, optimizer, parts);
}

double RangeUpdate::all_squares(const float* sum, double divisor) const {
  std::vector<double> blocks;
  for (int64_t lo = 0; lo < size_; lo += kBlockElements) {
    blocks.push_back(squares({lo, std::min(lo + kBlockElements, size_)}, sum + lo, divisor));
  }
  return total_squares(norm_parts(blocks, 0, std::ssize(blocks)), std::ssize(blocks));
}

}  // namespace pushpull
