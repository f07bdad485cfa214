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
  // encoded: `pull-codec` is bf16. Slices may come encoded then, and gradients are computed on
  // rounded weights even where all bits have come, for an evaluation: the times of evaluations do
  // not change what is learned.
  //   memory: for weights that come in.
  //   side_by_side: weights that stay with several servers are mapped rather than copied.
  explicit WeightsBuffer(const SliceMap& map, bool encoded = false,
                         FloatAllocator memory = heap_floats, bool side_by_side = false);

  // New weights are coming; nothing of them is here.
  void expect();
  // The payload is as long as the slice, encoded or not.
  bool fits(int slice, const Payload& payload) const;
  // Puts a slice of the coming weights, which fits, in its place.
  //   in_place: the payload stays as it is for as long as it is held. If it is the first slice to
  //   come, all weights of a single server are taken to lie around it.
  // False: the others lie elsewhere, or it is on a device and not in place; `expect` them anew.
  bool place(int slice, int64_t version, const Payload& payload, bool in_place = false);
  // This slice must come again.
  void forget(int slice);
  // The coming weights are in use from here on. The memory stays where it is: spans of `coming`
  // are spans of `current` now.
  void take_over() { std::swap(current_, coming_); }

  std::span<const float> current() const { return flat(current_); }
  // Has an address once a slice is here.
  std::span<const float> coming() const { return flat(coming_); }
  bool current_in_place() const { return lies_there(current_); }
  // The weights with all their bits, where they came so for an evaluation; elsewhere the current
  // weights.
  std::span<const float> whole() const {
    return encoded_ ? std::span<const float>(current_.whole) : current();
  }
  bool has(int slice) const { return version_[static_cast<size_t>(slice)] != kNone; }
  // All slices in which these elements lie.
  bool has(Range elements) const;
  bool has_any() const { return most_version() != kNone; }
  // The least version of all slices; kNone while one is missing.
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
    std::vector<float> whole;  // where weights come encoded: those that came with all their bits
  };

  std::span<const float> flat(const Flat& weights) const;
  // Some of it, with a server.
  static bool lies_there(const Flat& weights);
  bool is_encoded(int slice, const Payload& payload) const;
  // Decides by their first slice where the coming weights lie.
  void begin(const float* base, const Payload& payload, bool in_place);
  void put(int slice, const Payload& payload, bool in_place);
  void copy(int slice, const Payload& payload, float* to);

  SliceMap map_;
  bool encoded_;
  FloatAllocator memory_;
  bool side_by_side_;
  Flat current_;
  Flat coming_;
  std::vector<int64_t> version_;  // by slice, of coming_; kNone: not here yet
  int here_ = 0;                  // slices of coming_
};

}  // namespace pushpull
