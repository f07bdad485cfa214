#include "cli/run/failures.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"

namespace pushpull {

std::optional<Ending> Failures::of(size_t slot) const {
  const auto found = by_slot_.find(slot);
  return found == by_slot_.end() ? std::nullopt : std::optional(found->second.ending);
}

size_t Failures::cause() const {
  if (blame_) return blame_->slot;
  PP_ASSERT(any());
  const auto rank = [](const auto& entry) {
    return std::pair(entry.second.ending.is_consequence(), entry.second.order);
  };
  return std::min_element(by_slot_.begin(), by_slot_.end(),
                          [&](const auto& a, const auto& b) { return rank(a) < rank(b); })
      ->first;
}

}  // namespace pushpull
