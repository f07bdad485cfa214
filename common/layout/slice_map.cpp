#include "common/layout/slice_map.h"

#include <algorithm>

#include "common/base/error.h"

namespace pushpull {

SliceMap::SliceMap(int64_t total, int64_t slice_bytes, int servers,
                   const std::vector<int64_t>& stage_begins)
    : total_(total), servers_(servers) {
  PP_ASSERT(total > 0 && slice_bytes > 0 && servers > 0);
  const auto whole_blocks = [](int64_t elements) {
    return (elements + kBlockElements - 1) / kBlockElements * kBlockElements;
  };
  const auto asked = whole_blocks((slice_bytes + 3) / 4);
  // the largest size that still gives every server a slice, if there are enough blocks
  const int64_t fair = std::max<int64_t>(1, blocks() / servers) * kBlockElements;
  slice_elements_ = std::min(asked, fair);
  for (const int64_t begin : stage_begins) {
    PP_ASSERT(begin >= 0 && begin <= total);
    stages_.push_back({std::min(total, whole_blocks(begin)), 0});
    PP_ASSERT(stages_.back().begin >= stages_[stages_.size() - 2].begin);
  }
  for (int stage = 0; stage < stages(); ++stage) {
    stages_[static_cast<size_t>(stage)].first_slice = slices_;
    const int64_t elements = elements_of_stage(stage).size();
    slices_ += static_cast<int>((elements + slice_elements_ - 1) / slice_elements_);
  }
}

Range SliceMap::elements(int slice) const {
  PP_ASSERT(slice >= 0 && slice < slices_);
  const int stage = stage_of(slice);
  const Range all = elements_of_stage(stage);
  const int64_t index = slice - stages_[static_cast<size_t>(stage)].first_slice;
  const int64_t lo = all.lo + index * slice_elements_;
  return {lo, std::min(all.hi, lo + slice_elements_)};
}

int64_t SliceMap::slice_with(int64_t element) const {
  PP_ASSERT(element >= 0 && element < total_);
  const auto behind =
      std::upper_bound(stages_.begin(), stages_.end(), element,
                       [](int64_t wanted, const Stage& stage) { return wanted < stage.begin; });
  const Stage& stage = *(behind - 1);
  return stage.first_slice + (element - stage.begin) / slice_elements_;
}

Range SliceMap::slices_with(Range elements) const {
  if (elements.size() == 0) return {};
  return {slice_with(elements.lo), slice_with(elements.hi - 1) + 1};
}

int SliceMap::stage_of(int slice) const {
  const auto behind =
      std::upper_bound(stages_.begin(), stages_.end(), slice,
                       [](int wanted, const Stage& stage) { return wanted < stage.first_slice; });
  return static_cast<int>(behind - stages_.begin()) - 1;
}

Range SliceMap::slices_of_stage(int stage) const {
  const auto s = static_cast<size_t>(stage);
  return {stages_[s].first_slice,
          s + 1 < stages_.size() ? stages_[s + 1].first_slice : int64_t{slices_}};
}

Range SliceMap::elements_of_stage(int stage) const {
  const auto s = static_cast<size_t>(stage);
  return {stages_[s].begin, s + 1 < stages_.size() ? stages_[s + 1].begin : total_};
}

Range SliceMap::blocks(int slice) const {
  const Range e = elements(slice);
  return {e.lo / kBlockElements, (e.hi + kBlockElements - 1) / kBlockElements};
}

std::vector<int> SliceMap::slices_of(int server) const {
  std::vector<int> out;
  for (int s = server; s < slices_; s += servers_) out.push_back(s);
  return out;
}

}  // namespace pushpull
