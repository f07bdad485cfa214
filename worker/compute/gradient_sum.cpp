#include "worker/compute/gradient_sum.h"

#include <utility>

#include "common/base/error.h"

namespace pushpull {

GradientSum::GradientSum(const TensorTable& table, const SliceMap& map)
    : total_(table.total), map_(map), tensors_in_slice_(static_cast<size_t>(map.slices())) {
  for (const TensorInfo& tensor : table.tensors) {
    tensor_elements_.push_back({tensor.offset, tensor.offset + tensor.size});
  }
  for (int slice = 0; slice < map_.slices(); ++slice) {
    const Range s = map_.elements(slice);
    for (const Range& t : tensor_elements_) {
      if (t.lo < s.hi && s.lo < t.hi) ++tensors_in_slice_[static_cast<size_t>(slice)];
    }
  }
}

void GradientSum::begin(int64_t leaves) {
  PP_ASSERT(leaves > 0);
  if (leaves != leaves_) {
    std::vector<Range> nodes;
    for (int64_t i = 0; i < leaves; ++i) nodes.push_back({i, i + 1});
    merges_ = merge_plan(nodes, leaves);
    leaves_ = leaves;
  }
  next_leaf_ = 0;
  stack_.clear();
  missing_ = tensors_in_slice_;
  begin_node();
}

std::span<float> GradientSum::leaf() {
  PP_ASSERT(next_leaf_ < leaves_);
  stack_.push_back(take());
  return {stack_.back().get(), total()};
}

void GradientSum::tensor_ready(size_t tensor, const SliceReady& ready) {
  const Range elements = tensor_elements_.at(tensor);
  const auto merges = static_cast<size_t>(merges_[static_cast<size_t>(next_leaf_)]);
  PP_ASSERT(in_last_leaf() && merges + 1 == stack_.size());
  begin_tensor(tensor);
  for (size_t i = 0; i < merges; ++i) {
    add(stack_[stack_.size() - 2 - i].get(), stack_.back().get(), elements);
  }
  const int64_t slice_size = map_.elements(0).size();
  for (auto slice = static_cast<int>(elements.lo / slice_size);
       slice < map_.slices() && map_.elements(slice).lo < elements.hi; ++slice) {
    if (--missing_[static_cast<size_t>(slice)] > 0) continue;
    slice_done(slice, stack_.back(), ready);
  }
}

void GradientSum::all_ready(const SliceReady& ready) {
  for (size_t tensor = tensor_elements_.size(); tensor-- > 0;) tensor_ready(tensor, ready);
}

void GradientSum::end_leaf() {
  if (in_last_leaf()) {
    // tensor_ready has already added all pairs
    stack_.erase(stack_.begin(), stack_.end() - 1);
  } else if (merges_[static_cast<size_t>(next_leaf_)] > 0) {
    for (size_t t = 0; t < tensor_elements_.size(); ++t) begin_tensor(t);
    for (int m = 0; m < merges_[static_cast<size_t>(next_leaf_)]; ++m) {
      std::shared_ptr<float[]> right = std::move(stack_.back());
      stack_.pop_back();
      add(stack_.back().get(), right.get(), {0, total_});
      stack_.back() = std::move(right);
    }
  }
  ++next_leaf_;
}

}  // namespace pushpull
