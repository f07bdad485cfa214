// The weights sent to one worker, kept until the push computed on them arrives: delay compensation
// needs them. Holds references, not copies: a server never changes weights in place. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "common/net/message.h"

namespace pushpull {

class HandedWeights {
 public:
  // A worker computes on one version at a time, but repeated answers may add versions.
  static constexpr size_t kMaxVersions = 4;

  void keep(int64_t version, int slice, const Payload& weights);
  // Returns the slices sent in this version, by slice, or null if none are kept.
  const std::map<int, Payload>* find(int64_t version) const;
  // Call when the worker's next push must be computed on this version or a later one.
  void forget_before(int64_t version);
  size_t versions() const { return versions_.size(); }

 private:
  std::map<int64_t, std::map<int, Payload>> versions_;
};

}  // namespace pushpull
