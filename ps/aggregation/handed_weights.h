// The weights that a server has handed to one worker, until the push that was computed on them has
// come: delay compensation needs them then. References, no copies: a server's weights are never
// changed in place. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "common/net/message.h"

namespace pushpull {

class HandedWeights {
 public:
  // A worker computes on one version at a time; repeated answers hand out some more.
  static constexpr size_t kMostVersions = 4;

  void keep(int64_t version, int slice, const Payload& weights);
  // The slices that were handed out in this version, by slice; null: none is kept.
  const std::map<int, Payload>* find(int64_t version) const;
  // The worker's next push is computed on this version or a later one.
  void forget_before(int64_t version);
  size_t versions() const { return versions_.size(); }

 private:
  std::map<int64_t, std::map<int, Payload>> versions_;
};

}  // namespace pushpull
