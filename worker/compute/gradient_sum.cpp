#include "worker/compute/gradient_sum.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "common/base/error.h"
#include "common/base/simd.h"
#include "common/layout/tensor_table.h"

namespace pushpull {
namespace {

template <class T>
std::span<T> part_of(std::span<T> whole, const TensorInfo& tensor) {
  return whole.subspan(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.size));
}

}  // namespace

float SkippedGradients::take(const MicroBatch& computed, std::span<const float> weights,
                             const WeightsNeeded& needed) {
  const std::vector<TensorInfo>& tensors = table_.tensors;
  const auto bad = std::ranges::find_if(tensors, [&](const TensorInfo& tensor) {
    return !all_finite(part_of(computed.gradient, tensor).data(), tensor.size);
  });
  const bool good_loss = std::isfinite(computed.loss);
  if (good_loss && bad == tensors.end()) return computed.loss;
  wire::BadGradient& found = found_.emplace_back();
  found.set_loss(static_cast<int32_t>(computed.place));
  if (good_loss) found.set_tensor(static_cast<int32_t>(bad - tensors.begin()) + 1);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::span<float> part = part_of(computed.gradient, tensors[i]);
    if (tensors[i].rule != UpdateRule::kAverage) {
      std::ranges::fill(part, 0.0F);
      continue;
    }
    if (needed) needed(i);
    std::ranges::copy(part_of(weights, tensors[i]), part.begin());
  }
  return 0.0F;
}

namespace {

// A float is NaN or infinite if all bits of its exponent are set.
PUSHPULL_SIMD bool none_found(const float* x, int64_t n) {
  uint32_t found = 0;
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, x + i, sizeof bits);
    found |= static_cast<uint32_t>((bits & 0x7f800000U) == 0x7f800000U);
  }
  return found == 0;
}

PUSHPULL_SIMD void add_elements(const float* left, float* right, int64_t lo, int64_t hi) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = lo; i < hi; ++i) right[i] = left[i] + right[i];
}

// Sums of floats with a smaller bound do not overflow, whatever their rounding adds.
constexpr double kSafe = 1e30;

class HostSum final : public GradientSum {
 public:
  HostSum(std::vector<Range> tensors, const SliceMap& map, FloatAllocator memory)
      : GradientSum(std::move(tensors), map),
        pool_(total(), std::move(memory)),
        bounds_(tensor_elements().size()) {}

  std::shared_ptr<float[]> take() override { return pool_.get(); }
  std::span<const float> sum() const override { return {top(), total()}; }
  void bound(size_t tensor, double bound) override {
    bounds_[tensor] = in_first_leaf() ? bound : bounds_[tensor] + bound;
  }
  bool finite(int slice, const Payload& part) const override {
    const Range s = map().elements(slice);
    const auto& tensors = tensor_elements();
    const auto first = std::ranges::upper_bound(tensors, s.lo, {}, &Range::hi);
    for (auto t = first; t != tensors.end() && t->lo < s.hi; ++t) {
      if (bounds_[static_cast<size_t>(t - tensors.begin())] < kSafe) continue;
      const Range here{std::max(t->lo, s.lo), std::min(t->hi, s.hi)};
      if (!all_finite(part.floats() + (here.lo - s.lo), here.size())) return false;
    }
    return true;
  }

 private:
  void begin_node() override {
    std::ranges::fill(bounds_, std::numeric_limits<double>::infinity());
  }
  void add(const float* left, float* right, Range range) override { add_range(left, right, range); }
  void slices_done(Range slices, const std::shared_ptr<float[]>& sum,
                   const SliceReady& ready) override {
    for (auto slice = static_cast<int>(slices.lo); slice < slices.hi; ++slice) {
      ready(slice, slice_of(sum, map(), slice));
    }
  }

  BufferPool pool_;
  std::vector<double> bounds_;  // of each tensor's sum
};

}  // namespace

bool all_finite(const float* x, int64_t n) { return none_found(x, n); }

void add_range(const float* left, float* right, Range range) {
  add_elements(left, right, range.lo, range.hi);
}

Payload slice_of(const std::shared_ptr<float[]>& flat, const SliceMap& map, int slice) {
  const Range s = map.elements(slice);
  return {flat,
          std::as_bytes(std::span<const float>(flat.get() + s.lo, static_cast<size_t>(s.size())))};
}

std::vector<int> merges_of(int64_t leaves) {
  std::vector<Range> nodes;
  for (int64_t i = 0; i < leaves; ++i) nodes.push_back({i, i + 1});
  return merge_plan(nodes, leaves);
}

std::vector<Range> elements_of(const TensorTable& table) {
  std::vector<Range> out;
  for (const TensorInfo& tensor : table.tensors) {
    out.push_back({tensor.offset, tensor.offset + tensor.size});
  }
  return out;
}

SliceProgress::SliceProgress(std::vector<Range> tensors, const SliceMap& map)
    : map_(map),
      elements_(std::move(tensors)),
      tensors_in_slice_(static_cast<size_t>(map.slices())) {
  for (const Range& tensor : elements_) {
    const Range slices = map_.slices_with(tensor);
    for (int64_t slice = slices.lo; slice < slices.hi; ++slice) {
      ++tensors_in_slice_[static_cast<size_t>(slice)];
    }
  }
}

Range SliceProgress::done(size_t tensor) {
  const Range slices = map_.slices_with(elements_.at(tensor));
  Range done;
  for (int64_t slice = slices.lo; slice < slices.hi; ++slice) {
    if (--missing_[static_cast<size_t>(slice)] > 0) continue;
    if (done.size() == 0) done.lo = slice;
    done.hi = slice + 1;
  }
  return done;
}

GradientSum::GradientSum(std::vector<Range> tensors, const SliceMap& map)
    : slices_(std::move(tensors), map) {}

void GradientSum::begin(int64_t leaves) {
  PP_ASSERT(leaves > 0);
  if (leaves != leaves_) {
    merges_ = merges_of(leaves);
    leaves_ = leaves;
  }
  next_leaf_ = 0;
  stack_.clear();
  slices_.begin();
  begin_node();
}

std::span<float> GradientSum::leaf(std::shared_ptr<float[]> buffer) {
  PP_ASSERT(next_leaf_ < leaves_);
  stack_.push_back(std::move(buffer));
  return {stack_.back().get(), total()};
}

void GradientSum::tensor_ready(size_t tensor, const SliceReady& ready) {
  const auto merges = static_cast<size_t>(merges_[static_cast<size_t>(next_leaf_)]);
  PP_ASSERT(in_last_leaf() && merges + 1 == stack_.size());
  begin_tensor(tensor);
  for (size_t i = 0; i < merges; ++i) {
    add(stack_[stack_.size() - 2 - i].get(), stack_.back().get(), slices_.elements(tensor));
  }
  const Range done = slices_.done(tensor);
  if (done.size() > 0) slices_done(done, stack_.back(), ready);
}

void GradientSum::all_ready(const SliceReady& ready) {
  for (size_t tensor = tensor_elements().size(); tensor-- > 0;) tensor_ready(tensor, ready);
}

void GradientSum::end_leaf() {
  if (in_last_leaf()) {
    // tensor_ready has already added all pairs
    stack_.erase(stack_.begin(), stack_.end() - 1);
  } else if (merges_[static_cast<size_t>(next_leaf_)] > 0) {
    for (size_t t = 0; t < tensor_elements().size(); ++t) begin_tensor(t);
    for (int m = 0; m < merges_[static_cast<size_t>(next_leaf_)]; ++m) {
      std::shared_ptr<float[]> right = std::move(stack_.back());
      stack_.pop_back();
      add(stack_.back().get(), right.get(), slices_.all());
      stack_.back() = std::move(right);
    }
  }
  ++next_leaf_;
}

std::unique_ptr<GradientSum> make_host_sum(std::vector<Range> tensors, const SliceMap& map,
                                           FloatAllocator memory) {
  return std::make_unique<HostSum>(std::move(tensors), map, std::move(memory));
}

}  // namespace pushpull
