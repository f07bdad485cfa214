// The memory of a worker's weights: the flat vector that it computes on, and the one that is coming
// in slice by slice, with the version of each slice. Either is memory of our own, or lies where
// the server has written it, which may be memory of a device. Knows no message and no strategy:
// what is wanted, PushPull decides. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/buffer_pool.h"
#include "common/net/message.h"
#include "common/slice_map.h"

namespace pushpull {

class WeightsBuffer {
 public:
  // narrow: `pull-codec` is bf16. Then slices may come so, and gradients are computed on rounded
  // weights also where all bits have come, for an evaluation: so when evaluations are made does not
  // change what is learned.
  //   memory: where they lie that come in.
  explicit WeightsBuffer(const SliceMap& map, bool narrow = false,
                         FloatAllocator memory = heap_floats);

  // Nothing of the coming weights is here.
  void expect();
  // The payload is as long as the slice, narrow or not.
  bool fits(int slice, const Payload& payload) const;
  // Puts a slice of the coming weights, which fits, in its place.
  //   in_place: the payload stays as it is for as long as it is held. If it is the first slice to
  //   come, all weights are taken to lie around it.
  // False: the others lie elsewhere, or it is on a device and not in place; `expect` them anew.
  bool place(int slice, int64_t version, const Payload& payload, bool in_place = false);
  // What has come of this slice counts no more.
  void forget(int slice);
  // What was coming is in use from here on. The memory stays where it is: spans of `coming` are
  // spans of `current` now.
  void take_over() { std::swap(current_, coming_); }

  std::span<const float> current() const { return flat(current_); }
  // Where it lies is known once a slice is here.
  std::span<const float> coming() const { return flat(coming_); }
  bool current_in_place() const { return current_.in_place != nullptr; }
  // What came with all its bits, for an evaluation; elsewhere the current weights.
  std::span<const float> whole() const {
    return narrow_ ? std::span<const float>(current_.whole) : current();
  }
  bool has(int slice) const { return version_[static_cast<size_t>(slice)] != kNone; }
  // All slices in which these elements lie.
  bool has(Range elements) const;
  bool has_any() const { return most_version() != kNone; }
  // Of the slices that have come; kNone as long as one is missing.
  int64_t least_version() const;
  int64_t most_version() const;

  static constexpr int64_t kNone = -1;

 private:
  struct Flat {
    const float* in_place = nullptr;    // element 0, where it lies with the server's
    std::shared_ptr<const void> owner;  // of in_place
    std::shared_ptr<float[]> own;       // otherwise; made when it is first needed
    std::vector<float> whole;           // where weights come narrow: what came with all its bits
  };

  std::span<const float> flat(const Flat& weights) const;

  bool is_narrow(int slice, const Payload& payload) const;
  void copy(int slice, const Payload& payload);

  SliceMap map_;
  bool narrow_;
  FloatAllocator memory_;
  Flat current_;
  Flat coming_;
  std::vector<int64_t> version_;  // by slice, of coming_; kNone: not here yet
  int here_ = 0;                  // slices of coming_
};

}  // namespace pushpull
