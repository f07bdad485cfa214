// The life of each snapshot of a term, from the barrier that server 0 opens to the disk. A state
// machine: does no I/O and reads no clock. Not thread-safe.
//
//   stage         what happens in it                              what ends it
//   kOpen         servers hold the snapshot; it waits its turn    take_request
//   kRequested    its slices are on their way                     gathered; a copy's life is over
//   kGathered     servers free it; its evaluation may be awaited  take_task
//   kKeeping      the disk writes it as the best one              written
//   kKept         that is done                                    take_task
//   kWriting      the disk writes it among the newest, or it is   written; its life is over
//                 only hashed
//
// A snapshot is whole if the disk may get it, and a copy if server 0 only lacks the other servers'
// slices of it. One whole snapshot at a time is past kOpen. The start counts as the first barrier:
// its weights are gathered only to be hashed. If the run starts at its end, that barrier is the last
// one, too.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "common/job/barriers.h"
#include "common/net/flat_state.h"
#include "ps/report/checkpoint_writer.h"

namespace pushpull {

class BarrierSnapshots {
 public:
  enum class Stage { kOpen, kRequested, kGathered, kKeeping, kKept, kWriting };
  enum class Extent {
    kCopy,     // the slices of all servers but server 0
    kWeights,  // all slices, without the optimizer's state
    kWhole,    // all slices
  };
  struct Request {
    int64_t step = 0;
    Extent extent = Extent::kWhole;
    friend bool operator==(const Request&, const Request&) = default;
  };
  // Work of the disk.
  struct Task {
    GatheredState snapshot;
    std::optional<CheckpointKind> kind;  // nothing: the weights are only hashed
  };

  // Borrows the barriers of the term.
  //   saved: step of the checkpoint that the term starts from, if it is one.
  explicit BarrierSnapshots(const Barriers& barriers, std::optional<int64_t> saved = std::nullopt);

  // ---- events ----
  // Notes that the weights of barrier `step` exist: server 0 has exactly the updates of all earlier
  // steps. Returns false if it was open already and opens again because it has become a checkpoint
  // meanwhile.
  bool open(int64_t step);
  // Returns the next snapshot to gather, each once and in order. While another whole one is past
  // kOpen, returns copies only.
  std::optional<Request> take_request();
  // Notes that the snapshot has been gathered. It has no slices if it is a copy that needs none.
  void gathered(GatheredState snapshot);
  // Returns what the disk does next. Call once the evaluation of `waiting_step` has its result, if
  // one is awaited there.
  //   is_best: the evaluation is the best one.
  std::optional<Task> take_task(bool is_best);
  // Notes that the disk has done its task. Returns true if that ended the life of a snapshot.
  //   saved: false if the write failed.
  bool written(bool saved);

  // ---- queries ----
  // Returns true if the snapshot is written or hashed, false if it is only a copy or only kept if it
  // is the best.
  bool is_written(int64_t step) const {
    return step == barriers_.start_step || barriers_.checkpoint_due(step);
  }
  // Returns the step of the snapshot that waits for `take_task`.
  std::optional<int64_t> waiting_step() const;
  // Returns the step of the snapshot that the disk works on.
  std::optional<int64_t> disk_step() const;
  // Returns true while a whole snapshot is past kOpen.
  bool busy() const;
  // Snapshots up to this barrier have been gathered; start_step - 1 before the first one.
  int64_t gathered_barrier() const { return gathered_; }
  // Returns the step of the newest whole checkpoint on disk.
  const std::optional<int64_t>& saved_step() const { return saved_; }
  // Returns true once the checkpoint that the run stops with is on disk or was given up.
  bool stopped() const { return barriers_.stop_step > 0 && written_ >= barriers_.stop_step; }
  // Returns true once everything up to the end is on disk or was given up.
  bool complete() const { return written_ >= barriers_.end_step; }

 private:
  struct Life {
    int64_t step = 0;
    Stage stage = Stage::kOpen;
    bool whole = false;  // once it is requested
    GatheredState snapshot = {};
  };

  static bool at_disk(const Life& life) {
    return life.stage == Stage::kKeeping || life.stage == Stage::kWriting;
  }
  static bool waits(const Life& life) {
    return life.stage == Stage::kGathered || life.stage == Stage::kKept;
  }
  bool is_whole(int64_t step) const { return is_written(step) || barriers_.keeps_evaluated(step); }

  const Barriers& barriers_;
  std::deque<Life> lives_;  // by step; those that are over are gone
  int64_t newest_open_;
  int64_t newest_;  // snapshot, or the barrier before the first one
  int64_t gathered_;
  int64_t written_ = -1;
  std::optional<int64_t> saved_;
};

}  // namespace pushpull
