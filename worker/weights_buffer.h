// The memory of a worker's weights: the flat vector that it computes on, and the one that is coming
// in slice by slice, with the version of each slice. Knows no message and no strategy: what is
// wanted, PushPull decides. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/net/message.h"
#include "common/slice_map.h"

namespace pushpull {

class WeightsBuffer {
 public:
  explicit WeightsBuffer(const SliceMap& map);

  // Nothing of the coming weights is here.
  void expect();
  // The payload is as long as the slice.
  bool fits(int slice, const Payload& payload) const;
  // Puts a slice of the coming weights, which fits, in its place.
  void place(int slice, int64_t version, const Payload& payload);
  // What has come of this slice counts no more.
  void forget(int slice) { version_[static_cast<size_t>(slice)] = kNone; }
  // What was coming is in use from here on. The memory stays where it is: spans of `coming` are
  // spans of `current` now.
  void take_over() { std::swap(current_, coming_); }

  std::span<const float> current() const { return current_; }
  std::span<const float> coming() const { return coming_; }
  bool has(int slice) const { return version_[static_cast<size_t>(slice)] != kNone; }
  // All slices in which these elements lie.
  bool has(Range elements) const;
  bool has_any() const { return most_version() != kNone; }
  // Of the slices that have come; kNone as long as one is missing.
  int64_t least_version() const;
  int64_t most_version() const;

  static constexpr int64_t kNone = -1;

 private:
  SliceMap map_;
  std::vector<float> current_;
  std::vector<float> coming_;
  std::vector<int64_t> version_;  // by slice, of coming_; kNone: not here yet
};

}  // namespace pushpull
