// The fixed shares of every step that a worker owns, and its progress in each. Plain bookkeeping
// for schedules that work on shares. Single-threaded.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/job/barriers.h"
#include "common/layout/fixed_tree.h"
#include "common/net/message.h"

namespace pushpull {

// One piece of a worker's work, as its schedule hands it out. Plain value.
struct Task {
  enum Kind {
    kWait,      // process messages, then ask again
    kCompute,   // micro-batches `range` of `step`, then push
    kEvaluate,  // chunks `range` at barrier `step`, then finish_evaluation
    kDone,      // nothing more to compute in this run, unless a new share arrives
  };
  Kind kind = kWait;
  int64_t step = 0;
  Range range;
  int64_t steps = 1;  // local:H: the task covers steps [step, step + steps)

  friend bool operator==(const Task&, const Task&) = default;
};

// The sizes that shares and leases of a run divide.
struct WorkPlan {
  Barriers barriers;
  int shares = 1;             // per step and per evaluation, unless the State says otherwise
  int64_t chunks = 0;         // per evaluation
  int64_t micro_batches = 0;  // per step

  // Returns true if the pull of a barrier's weights gets averages, which no step is computed on.
  bool gets_averages(bool at_barrier) const { return at_barrier && barriers.averages; }
  bool takes_averages(const Task& task) const {
    return gets_averages(task.kind == Task::kEvaluate);
  }
};

struct OwnedShare {
  Range range;             // micro-batches; if empty, the worker only evaluates its chunks
  Range steps;             // that are divided like this
  int shares = 1;          // into which these steps are divided
  int index = 0;           // among `shares`
  int64_t clock = 0;       // next step to compute; -1 if not known yet
  bool evaluated = false;  // the barrier at `clock` is evaluated
  // backup:B: barriers up to this step need no evaluation by this worker
  int64_t evaluated_through = 0;
  wire::Grant grant = {};  // permission to push this share
  int64_t attempt = 0;     // of the group that computes it; 0 if no group does
};

class ShareList {
 public:
  explicit ShareList(const WorkPlan& plan) : plan_(plan) {}

  // Takes the assigned shares. Known shares keep their progress, new ones begin.
  //   clock: returns the first step of a new share, given the step that the coordinator names.
  //   may_be_empty: allows a share without micro-batches.
  // Returns true if a share is new. Throws Error(kProtocol) for a share that cannot exist.
  bool assign(const wire::State& state, const std::function<int64_t(int64_t from_step)>& clock,
              bool may_be_empty = false);
  // Returns true if a group computes the shares.
  bool in_group() const { return !shares_.empty() && shares_.front().attempt > 0; }
  // Sets the clock of all shares that have none.
  void begin_at(int64_t clock);

  // Returns true if a share has nothing left to do: its steps are computed, and the run continues
  // with other shares.
  bool finished(const OwnedShare& share) const {
    return share.clock >= share.steps.hi && share.steps.hi < plan_.barriers.end_step;
  }
  // Returns the number of shares that are not finished.
  int64_t unfinished() const;
  // Returns the first step that no share has been computed for.
  int64_t newest_clock() const;
  // Returns the share that is furthest behind and has work left, or null.
  const OwnedShare* lowest() const;
  // Returns the next task of the lowest share.
  std::optional<Task> next_task() const;
  // Returns the task that probably follows it.
  std::optional<Task> upcoming() const;
  // Records that the task of the lowest share, with this step and range, was pushed or evaluated.
  void pushed(int64_t step, Range range);
  void evaluated();

  // Returns the grant of the share with these micro-batches; empty if this worker does not have it.
  wire::Grant grant(Range range) const;
  // Returns the share's part of an evaluation.
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
