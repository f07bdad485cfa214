#include "ps/aggregation/handed_weights.h"

namespace pushpull {

void HandedWeights::keep(int64_t version, int slice, const Payload& weights) {
  versions_[version].insert_or_assign(slice, weights);
  if (versions_.size() > kMaxVersions) versions_.erase(versions_.begin());
}

const std::map<int, Payload>* HandedWeights::find(int64_t version) const {
  const auto found = versions_.find(version);
  return found == versions_.end() ? nullptr : &found->second;
}

void HandedWeights::forget_before(int64_t version) {
  versions_.erase(versions_.begin(), versions_.lower_bound(version));
}

}  // namespace pushpull
