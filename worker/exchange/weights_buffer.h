// Memory for a worker's weights, and the state of the pull that fills it. WeightsBuffer holds two
// flat vectors: the one that the worker computes on, and the one that arrives slice by slice.
// PullState checks each message of weights before it touches that memory, and counts the slices
// that are missing. Does no I/O and reads no clock. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/layout/slice_map.h"
#include "common/net/message.h"
#include "common/shm/page_view.h"
#include "worker/exchange/schedule.h"
#include "worker/exchange/to_server.h"

namespace pushpull {

// Either vector is in memory of this process or, with shared memory, in the memory where the server
// wrote it, possibly on a device. Shared slices of several servers are mapped side by side. A slice
// that is the whole vector stays in the message that brought it.
class WeightsBuffer {
 public:
  // encoded: `pull-codec` is bf16, so slices may arrive encoded. Gradients are then computed on
  // rounded weights even where all bits have arrived for an evaluation, so that the times of
  // evaluations do not change the result.
  //   memory: allocates the vectors of this process.
  //   anywhere: weights need not be in `memory`: shared ones of several servers are mapped, and those of
  //   one slice stay in their message.
  //   pulled: slices that arrive; empty: all.
  explicit WeightsBuffer(const SliceMap& map, bool encoded = false,
                         FloatAllocator memory = heap_floats, bool anywhere = false,
                         const std::vector<Range>& pulled = {});

  // Starts a new arriving vector; all its slices are missing.
  void expect();
  // Returns true if the payload has the length of the slice, encoded or plain.
  bool fits(int slice, const Payload& payload) const;
  // Puts a slice of the arriving vector in its place. The payload must fit.
  //   in_place: the payload does not change while it is held. With a single server, the whole
  //   vector must be in the memory of its first slice.
  // Returns false if the slice is elsewhere, or is on a device and not shared; the caller then
  // calls `expect` and pulls again.
  bool place(int slice, int64_t version, const Payload& payload, bool in_place = false);
  // Marks the slice as missing again.
  void forget(int slice);
  // Makes the arriving vector the current one. Its memory does not move: spans of `arriving` remain
  // valid as spans of `current`.
  void take_over() { std::swap(current_, arriving_); }

  std::span<const float> current() const { return flat(current_); }
  // The arriving vector; its address is null until the first slice is placed.
  std::span<const float> arriving() const { return flat(arriving_); }
  bool current_in_place() const { return is_shared(current_); }
  // The current weights without rounding, if they arrived so for an evaluation.
  std::span<const float> whole() const {
    if (!encoded_) return current();
    return {current_.whole.get(), current_.whole ? static_cast<size_t>(map_.total()) : 0};
  }
  bool has(int slice) const { return version_[static_cast<size_t>(slice)] != kNone; }
  // Returns true if all slices that contain these elements have arrived.
  bool has(Range elements) const;
  bool has_any() const { return max_version() != kNone; }
  // The lowest version of all slices that the worker pulls; kNone while one is missing.
  int64_t min_version() const;
  int64_t max_version() const;

  static constexpr int64_t kNone = -1;

 private:
  enum class Location { kOwn, kReceived, kInPlace, kInView };
  // The last three are allocated when they are first needed.
  struct Flat {
    Location location = Location::kOwn;
    const float* in_place = nullptr;    // element 0 in the server's memory, or in a message
    std::shared_ptr<const void> owner;  // of in_place
    std::unique_ptr<PageView> view;
    std::shared_ptr<float[]> own;
    std::shared_ptr<float[]> whole;  // unrounded weights, where `pull-codec` is bf16
  };

  std::span<const float> flat(const Flat& weights) const;
  // Returns true if at least one slice is in a server's memory.
  static bool is_shared(const Flat& weights);
  bool is_encoded(int slice, const Payload& payload) const;
  // Chooses the memory of the arriving vector by its first slice.
  void begin(const float* base, const Payload& payload, bool in_place);
  void put(int slice, const Payload& payload, bool in_place);
  void copy(int slice, const Payload& payload, float* to);

  SliceMap map_;
  bool encoded_;
  FloatAllocator memory_;
  bool maps_;   // shared slices of several servers
  bool keeps_;  // the only slice, in its message
  Flat current_;
  Flat arriving_;
  std::vector<Range> pulled_;     // slices
  std::vector<int64_t> version_;  // by slice of arriving_; kNone if it is missing
  int here_ = 0;                  // slices of arriving_ that have arrived
};

// The progress of one pull: the slices that are missing, and the versions of the others.
class PullState {
 public:
  enum Taken {
    kNone,           // nothing new
    kSome,           // slices that were missing
    kNotContiguous,  // shared weights that are not contiguous: the pull must start again
  };

  // Borrows both. Weights are written to the buffer.
  PullState(const ConnectionMap& connections, WeightsBuffer& weights);

  // Starts a pull: all slices are missing.
  void begin(const PullAim& aim);
  // Places the slices of a server's answer to this pull; skips those that do not belong to it.
  //   in_place: the payloads do not change while they are held.
  Taken take(int server, const wire::Weights& weights, const std::vector<Payload>& payloads,
             bool in_place);

  // The number of the server's slices that are missing.
  int missing(int server) const { return at(server).missing; }
  // Lists the missing slices of this connection in a repeated pull, the lowest ones first.
  void put_missing(int server, int connection, wire::Pull* pull) const;
  // The version of the server's slices, for a complete pull with kPerServer.
  int64_t version(int server) const { return at(server).version; }
  // Returns true if all slices are exactly those of the barrier. Call when the pull is complete.
  bool at_barrier() const;

 private:
  struct Server {
    int missing = 0;
    int64_t version = -1;    // kPerServer: of the slices that have arrived; -1 if there are none
    bool at_barrier = true;  // the slices that have arrived are those of the barrier
  };
  const Server& at(int server) const { return servers_[static_cast<size_t>(server)]; }
  bool is_needed(int server, const wire::SliceVersion& entry, const Payload& payload);
  bool is_one_version(int server, int64_t version);

  const ConnectionMap& connections_;
  WeightsBuffer& weights_;
  std::vector<Server> servers_;
  PullAim aim_;
};

}  // namespace pushpull
