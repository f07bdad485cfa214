// The memory of a worker's weights: the flat vector that it computes on, and the one that is coming
// in slice by slice, with the version of each slice. Either is memory of our own, or lies where
// the server has written it, which may be memory of a device; what several servers have written
// is mapped side by side. Knows no message and no strategy: what is wanted, PushPull decides. One
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/layout/slice_map.h"
#include "common/net/message.h"
#include "common/shm/page_view.h"

namespace pushpull {

class WeightsBuffer {
 public:
  // narrow: `pull-codec` is bf16. Then slices may come so, and gradients are computed on rounded
  // weights also where all bits have come, for an evaluation: so when evaluations are made does not
  // change what is learned.
  //   memory: where they lie that come in.
  //   side_by_side: what stays with several servers is mapped rather than copied there.
  explicit WeightsBuffer(const SliceMap& map, bool narrow = false,
                         FloatAllocator memory = heap_floats, bool side_by_side = false);

  // Nothing of the coming weights is here.
  void expect();
  // The payload is as long as the slice, narrow or not.
  bool fits(int slice, const Payload& payload) const;
  // Puts a slice of the coming weights, which fits, in its place.
  //   in_place: the payload stays as it is for as long as it is held. If it is the first slice to
  //   come, all weights of a single server are taken to lie around it.
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
  bool current_in_place() const { return lies_there(current_); }
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
  enum class Lies { kOwn, kInPlace, kInView };
  // The last three are made when they are first needed.
  struct Flat {
    Lies lies = Lies::kOwn;
    const float* in_place = nullptr;    // element 0, where it lies with the server's
    std::shared_ptr<const void> owner;  // of in_place
    std::unique_ptr<PageView> view;
    std::shared_ptr<float[]> own;
    std::vector<float> whole;  // where weights come narrow: what came with all its bits
  };

  std::span<const float> flat(const Flat& weights) const;
  // Some of it, with a server.
  static bool lies_there(const Flat& weights);
  bool is_narrow(int slice, const Payload& payload) const;
  // Where the coming weights lie, of which this is the first slice.
  void begin(const float* base, const Payload& payload, bool in_place);
  void put(int slice, const Payload& payload, bool in_place);
  void copy(int slice, const Payload& payload, float* to);

  SliceMap map_;
  bool narrow_;
  FloatAllocator memory_;
  bool side_by_side_;
  Flat current_;
  Flat coming_;
  std::vector<int64_t> version_;  // by slice, of coming_; kNone: not here yet
  int here_ = 0;                  // slices of coming_
};

}  // namespace pushpull
