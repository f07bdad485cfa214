// Tracks the barriers that server 0 has opened and the snapshot at each checkpoint and copy among
// them: requested, gathered (servers may then free it), and for a checkpoint written. Part of the
// coordinator's state machine. Not thread-safe.
//
// The start counts as the first barrier: its weights are gathered only to be hashed. If the run
// starts at its end, that barrier is the last one, too.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "common/job/barriers.h"

namespace pushpull {

// A barrier that server 0 has opened: it has exactly the updates of all steps before `step`.
struct OpenedBarrier {
  int64_t step = 0;
  int64_t samples = 0;  // samples of this run that its weights contain
  friend bool operator==(const OpenedBarrier&, const OpenedBarrier&) = default;
};

class BarrierSnapshots {
 public:
  // Borrows the barriers of the run.
  explicit BarrierSnapshots(const Barriers& barriers);

  // Notes that the weights of barrier `step` exist. Returns false if it was open already and opens
  // again because it has become a checkpoint meanwhile.
  bool open(int64_t step, int64_t samples);
  void gathered(int64_t step);
  // Notes that the checkpoint is on disk or was given up.
  void written(int64_t step);
  // Notes that training waits for a snapshot. Returns true the first time.
  bool waits() { return !std::exchange(has_waited_, true); }

  // Returns the barriers that have opened since the last call.
  std::vector<OpenedBarrier> take_opened() { return std::exchange(opened_, {}); }
  // Returns the next barrier with a snapshot to gather, each once and in order. The first is the
  // start: weights only, to be hashed.
  //   writing: an earlier snapshot is still being written; then only a copy is returned.
  std::optional<int64_t> take_request(bool writing = false);
  // Returns true if the weights are gathered whole: they go to disk, or may if they are the best.
  bool is_whole(int64_t step) const { return is_written(step) || barriers_.keeps_evaluated(step); }
  // Notes that this snapshot is handed to the disk.
  void asked(int64_t step) { asked_barrier_ = step; }
  // Returns true if the snapshot goes to disk, false if only a copy of the servers is needed.
  bool is_written(int64_t step) const {
    return step == barriers_.start_step || barriers_.checkpoint_due(step);
  }

  // Snapshots up to this barrier have been gathered; start_step - 1 before the first one.
  int64_t gathered_barrier() const { return gathered_barrier_; }
  // Returns true while a gathered snapshot is not yet written.
  bool writing() const {
    return gathered_barrier_ >= asked_barrier_ && written_barrier_ < asked_barrier_;
  }
  // Sets the number of slices that have been loaded and gathered so far.
  void note_transferred(int64_t slices) { transferred_ = slices; }
  int64_t transferred() const { return transferred_; }
  // Returns true once the checkpoint that the run stops with is on disk.
  bool stopped() const {
    return barriers_.stop_step > 0 && written_barrier_ >= barriers_.stop_step;
  }
  // Returns true once everything up to the end is on disk.
  bool complete() const { return written_barrier_ >= barriers_.end_step; }

 private:
  const Barriers& barriers_;
  std::vector<OpenedBarrier> opened_;
  std::deque<int64_t> requests_;
  int64_t newest_open_;
  int64_t newest_request_;
  int64_t gathered_barrier_ = -1;
  int64_t asked_barrier_ = -1;
  int64_t transferred_ = 0;
  int64_t written_barrier_ = -1;
  bool has_waited_ = false;
};

}  // namespace pushpull
