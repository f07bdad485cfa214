// The fixed shares of every step that a worker owns, and how far each has come. Plain bookkeeping
// of the schedules whose work comes from shares. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/job/barriers.h"
#include "common/net/message.h"
#include "worker/schedule/task.h"

namespace pushpull {

// The sizes that shares and leases of a run are cut from.
struct WorkPlan {
  Barriers barriers;
  int shares = 1;             // that a step, and an evaluation, is cut into where none is said
  int64_t chunks = 0;         // of an evaluation
  int64_t micro_batches = 0;  // of a step
};

struct OwnedShare {
  Range range;             // micro-batches; empty: only its chunks are evaluated
  Range steps;             // that have this share
  int shares = 1;          // that these steps are cut into
  int index = 0;           // among those
  int64_t clock = 0;       // step that is computed next; -1: not known yet
  bool evaluated = false;  // the barrier at `clock`
  // backup:B: barriers up to here need no evaluation of ours
  int64_t evaluated_through = 0;
  wire::Grant grant = {};  // to push it
};

class ShareList {
 public:
  explicit ShareList(const WorkPlan& plan) : plan_(plan) {}

  // Takes in what is assigned: known shares go on where they are, others begin.
  //   clock: of a share that begins, from the step that the coordinator names.
  //   may_be_empty: a share may have no micro-batches.
  // True: there is a new one. Throws Error(kProtocol) for a share that does not exist.
  bool assign(const wire::State& state, const std::function<int64_t(int64_t from_step)>& clock,
              bool may_be_empty = false);
  // Shares whose clock is not known begin here.
  void begin_at(int64_t clock);

  // It has nothing left to do: its steps are computed, and others come behind them.
  bool finished(const OwnedShare& share) const {
    return share.clock >= share.steps.hi && share.steps.hi < plan_.barriers.end_step;
  }
  // Shares that are not finished.
  int64_t unfinished() const;
  // The first step that none of them has been computed for.
  int64_t newest_clock() const;
  // The share that is furthest behind and has something left; null: none.
  const OwnedShare* lowest() const;
  // Its next task.
  std::optional<Task> next_task() const;
  // Probably the task behind that.
  std::optional<Task> upcoming() const;
  // The task of the lowest share, which is for this step and range, is pushed; is evaluated.
  void pushed(int64_t step, Range range);
  void evaluated();

  // The grant of the share with these micro-batches; an empty one: it is another worker's.
  wire::Grant grant(Range range) const;
  // The part of an evaluation that belongs to the share.
  Range chunks_of(const OwnedShare& share) const;

  const std::vector<OwnedShare>& all() const { return shares_; }
  std::vector<OwnedShare>& all() { return shares_; }
  bool empty() const { return shares_.empty(); }
  const WorkPlan& plan() const { return plan_; }

 private:
  const WorkPlan plan_;
  std::vector<OwnedShare> shares_;
};

}  // namespace pushpull
