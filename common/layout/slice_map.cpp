#include "common/layout/slice_map.h"

#include <algorithm>

#include "common/base/error.h"

namespace pushpull {

SliceMap::SliceMap(int64_t total, int64_t slice_bytes, int servers)
    : total_(total), servers_(servers) {
  PP_ASSERT(total > 0 && slice_bytes > 0 && servers > 0);
  const auto whole_blocks = [](int64_t elements) {
    return (elements + kBlockElements - 1) / kBlockElements * kBlockElements;
  };
  const auto asked = whole_blocks((slice_bytes + 3) / 4);
  // the largest size that still gives every server a slice, if there are enough blocks
  const int64_t fair = std::max<int64_t>(1, blocks() / servers) * kBlockElements;
  slice_elements_ = std::min(asked, fair);
  slices_ = static_cast<int>((total + slice_elements_ - 1) / slice_elements_);
}

Range SliceMap::elements(int slice) const {
  PP_ASSERT(slice >= 0 && slice < slices_);
  return {slice * slice_elements_, std::min(total_, (slice + 1) * slice_elements_)};
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
