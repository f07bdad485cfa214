// The barriers that server 0 has opened, and the snapshot that is taken at each checkpoint and copy
// among them: requested, gathered (servers may let go of it), and a checkpoint's written. Part of the coordinator's state
// machine; one thread.
//
// The start counts as the first: its weights are gathered for their hash alone.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "common/job/barriers.h"

namespace pushpull {

// A barrier that server 0 has opened.
struct OpenedBarrier {
  int64_t step = 0;
  int64_t samples = 0;  // of this run, that are in its weights
  friend bool operator==(const OpenedBarrier&, const OpenedBarrier&) = default;
};

class BarrierSnapshots {
 public:
  BarrierSnapshots() = default;
  explicit BarrierSnapshots(const Barriers& barriers);

  // The run stops with the checkpoint at `step`, which is not open.
  void stop_at(int64_t step) { barriers_.stop_step = step; }
  // A checkpoint will be at `step`, too, which has not been reached.
  void choose(int64_t step) { barriers_.choose(step); }
  // The weights of barrier `step` exist. False: it was open, and is opened once more since it has become a
  // checkpoint meanwhile.
  bool open(int64_t step, int64_t samples);
  void gathered(int64_t step);
  // On disk, or given up.
  void written(int64_t step);
  // Training waits for a snapshot. True the first time.
  bool waits() { return !std::exchange(has_waited_, true); }

  // The barriers that have opened since the last call.
  std::vector<OpenedBarrier> take_opened() { return std::exchange(opened_, {}); }
  // The next barrier whose snapshot must be gathered; each once, in order.
  //   writing: an earlier one is still being written; a copy is not.
  std::optional<int64_t> take_request(bool writing = false);
  // It goes to the disk. Otherwise the servers' copy is all that is wanted.
  bool is_written(int64_t step) const {
    return step == barriers_.start_step || barriers_.checkpoint_due(step);
  }

  // Snapshots up to this barrier have been gathered; -1: none.
  int64_t gathered_barrier() const { return gathered_barrier_; }
  // A snapshot is gathered and not yet written.
  bool writing() const {
    return gathered_barrier_ >= asked_barrier_ && written_barrier_ < asked_barrier_;
  }
  // The number of slices that have been loaded and gathered so far.
  void note_transferred(int64_t slices) { transferred_ = slices; }
  int64_t transferred() const { return transferred_; }
  // The checkpoint that the run stops with is on disk.
  bool stopped() const {
    return barriers_.stop_step > 0 && written_barrier_ >= barriers_.stop_step;
  }
  // Everything up to the end is on disk.
  bool complete() const { return written_barrier_ >= barriers_.end_step; }

 private:
  Barriers barriers_;
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
