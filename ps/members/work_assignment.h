// Decides which worker computes which micro-batches, and which one takes over when another is lost.
// Each strategy divides work in one of these ways, made by make_work_assignment; the coordinator
// does not know which one it is. Part of the coordinator's state machine. Not thread-safe.
//
//   FixedShares      each worker computes the same micro-batches of every step
//   BackupShares     the same, and a step ends without the slowest ones
//   AllReduceShares  the same, and the owners learn each other's addresses
//   LeasedWork       workers draw leases from one pool
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/job/barriers.h"
#include "common/net/message.h"
#include "common/net/refusals.h"
#include "ps/members/actions.h"
#include "ps/members/committed_work.h"
#include "ps/members/evaluations.h"
#include "ps/members/membership.h"
#include "ps/members/work_groups.h"
#include "ps/server/commit.h"
#include "ps/server/grants.h"

namespace pushpull {

struct Job;

// The inputs of an assignment. References must outlive it.
struct WorkSetup {
  const Job& job;
  const Barriers& barriers;     // of the run; they may change
  int workers = 1;              // number of ranks
  int shares = 1;               // shares per step
  int servers_with_slices = 1;  // servers that take part in a step
  const Membership& members;
  WorkGroups& groups;  // of the members: they take the work
  const CommittedWork& committed;
  const Evaluations& evaluations;
  const FollowedEvaluations& followed;
  const Grants& grants;
  Actions& out;
  int64_t samples_before = 0;  // of the run, before start_step
};

class WorkAssignment {
 public:
  explicit WorkAssignment(const WorkSetup& setup) : setup_(setup) {}
  virtual ~WorkAssignment() = default;

  // Handles a push that server 0 has accepted or dropped.
  virtual void on_commit(const Commit& commit) = 0;
  virtual void on_barrier_open(int64_t /*step*/) {}
  // Call before each State goes out: progress made meanwhile may allow a new division of work.
  virtual void on_tick() {}
  // Notes that a unit has evaluated a chunk, once the evaluations have its result.
  //   completes: it is the last one of its evaluation.
  virtual void on_chunk(uint64_t /*unit*/, int64_t /*step*/, int64_t /*chunk*/,
                        bool /*completes*/) {}
  // Handles a server's report of the pushes of its running step that are complete there.
  virtual Checked on_arrived(const MemberInfo& server, const wire::Arrived& arrived);

  // Handles the loss of a unit. Returns true if it had work.
  //   reports: a worker of it is left that may still report evaluations.
  virtual bool lose(int64_t now_ms, uint64_t unit, bool reports) = 0;
  // Call when workers have joined or left: assigns free work, or announces that training is paused.
  void fill();
  // Like `fill`, when a worker has left by itself: the others take its work at once, whatever on-worker-loss
  // says.
  void share_out();
  // Returns the units that hold unfinished work of steps up to `step`, or of an evaluation there.
  virtual std::vector<uint64_t> unfinished(int64_t step) const = 0;
  // Returns true if the unit may report the result of this chunk of the evaluation at `step`.
  virtual bool may_evaluate(uint64_t unit, int64_t step, int64_t chunk) const = 0;
  // Returns true if the unit has been given work. A spare has not.
  virtual bool has_work(uint64_t unit) const = 0;
  // Returns true if fewer workers are left than min-workers: no new work begins.
  bool is_paused() const;
  // Returns true if some work waits for a worker.
  virtual bool lacks_workers() const = 0;
  // Returns an error text if some work has waited for longer than replacement-timeout, else "".
  virtual std::string overdue(int64_t now_ms) = 0;
  // Returns the worker's unfinished leases, topped up; empty without a pool.
  virtual std::vector<wire::Lease> leases(const MemberInfo& worker);

  // Returns the nearest step, or a later one, that no worker can have begun: there every server can
  // still pause with exactly the updates of all earlier steps.
  virtual int64_t nearest_cut() const = 0;
  // Returns the first step that no worker can have begun to compute or push.
  virtual int64_t first_unbegun_step() const = 0;

  // Add the State's fields that depend on the division of work.
  virtual void add_to_worker_state(wire::State* /*state*/, const MemberInfo& /*worker*/) const {}
  virtual void add_to_server_state(wire::State* /*state*/) const {}
  // Returns the samples of this run that the weights of a barrier contain. Call when it opens.
  virtual int64_t samples_at(int64_t barrier) const;
  // Returns a line for users when everything is computed, or "".
  virtual std::string closing_notice() const { return ""; }

 protected:
  // Assigns free work to workers. Called only with min-workers or more.
  virtual void assign() = 0;
  int64_t replacement_timeout_ms() const;
  // Returns the number of workers that may be given work, as they are or in groups.
  int64_t workers_with_rank() const;
  // Returns true if the job continues without waiting for a replacement.
  bool continues() const;
  // Returns the error text for a job that was paused for too long.
  std::string paused_text() const;
  const WorkSetup& setup() const { return setup_; }

 private:
  const WorkSetup setup_;
  bool was_paused_ = false;  // paused, and announced
  bool shares_out_ = false;  // share_out is at work
};

std::unique_ptr<WorkAssignment> make_work_assignment(const WorkSetup& setup);

}  // namespace pushpull
