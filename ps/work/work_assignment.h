// Decides which worker computes what, and who takes over when one is lost. A strategy divides work
// in one of these ways, made by make_work_assignment; the coordinator does not know which it is.
// Part of its state machine; one thread.
//
//   FixedShares      each worker computes the same micro-batches of every step
//   BackupShares     the same, and a step ends without the slowest ones
//   AllReduceShares  the same, and the owners learn where to reach each other
//   LeasedWork       workers draw leases from one pool
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/job/barriers.h"
#include "common/job/job.h"
#include "common/net/message.h"
#include "common/net/refusal.h"
#include "ps/aggregation/commit.h"
#include "ps/members/actions.h"
#include "ps/members/membership.h"
#include "ps/server/grants.h"
#include "ps/work/evaluations.h"
#include "ps/work/training_progress.h"

namespace pushpull {

// Everything that an assignment is made from. References outlive it.
struct WorkSetup {
  const Job& job;
  Barriers barriers;
  int workers = 1;              // ranks
  int shares = 1;               // that a step is divided into
  int servers_with_slices = 1;  // servers that take part in a step
  const Membership& members;
  const TrainingProgress& progress;
  const Evaluations& evaluations;
  const Grants& grants;
  Actions& out;
  int64_t samples_before = 0;  // of the run, at the start of the barriers
};

class WorkAssignment {
 public:
  explicit WorkAssignment(const WorkSetup& setup) : setup_(setup) {}
  virtual ~WorkAssignment() = default;

  // Server 0 has taken a push, or dropped it.
  virtual void on_commit(const Commit& commit) = 0;
  virtual void on_barrier_open(int64_t /*step*/) {}
  // Before each state goes out: what has moved meanwhile may let the division of work change.
  virtual void on_tick() {}
  // A worker has evaluated a chunk.
  virtual void on_chunk(uint64_t /*incarnation*/, int64_t /*step*/, int64_t /*chunk*/) {}
  virtual void on_evaluation_complete() {}
  // A server says which pushes of its running step are complete there.
  virtual Checked on_arrived(const MemberInfo& server, const wire::Arrived& arrived);

  // The worker is no member any longer. True: it had work.
  virtual bool lose(int64_t now_ms, const MemberInfo& worker) = 0;
  // Workers have come or gone: hands work that nobody has to those that are there, or says that
  // training stands.
  void fill();
  // Workers that hold something of steps up to `step`, or of an evaluation there, that they have not
  // finished.
  virtual std::vector<uint64_t> unfinished(int64_t step) const = 0;
  // The worker may say what chunk `chunk` of the evaluation at `step` has come to.
  virtual bool may_evaluate(uint64_t incarnation, int64_t step, int64_t chunk) const = 0;
  // It has been given work: a spare has not.
  virtual bool has_work(uint64_t incarnation) const = 0;
  // Fewer workers are left than the job needs: nothing new is begun.
  bool stands() const;
  // Some work has no worker, and waits for one.
  virtual bool lacks_workers() const = 0;
  // Why the job cannot go on: nobody has come for some work for too long. "": it can.
  virtual std::string overdue(int64_t now_ms) = 0;
  // Everything that the worker holds and has not finished, topped up; empty without a pool.
  virtual std::vector<wire::Lease> leases(const MemberInfo& worker);

  // The nearest step before which nobody can have begun anything of it, or a later one: where every server
  // can still pause with exactly the updates of all earlier steps.
  virtual int64_t nearest_cut() const = 0;
  // Nothing of steps from `step` on is begun.
  virtual void stop_at(int64_t /*step*/) {}
  // Nobody can have begun to compute this step, or pushes for it.
  virtual int64_t first_unbegun_step() const = 0;
  // A checkpoint will be at `step`, too, which nobody has begun. held: not everybody knows yet.
  virtual void on_chosen(int64_t /*step*/, bool /*held*/) {}

  // Fields of the state that depend on how work is divided.
  virtual void add_to_worker_state(wire::State* /*state*/, const MemberInfo& /*worker*/) const {}
  virtual void add_to_server_state(wire::State* /*state*/) const {}
  // Samples of this run that are in the weights of a barrier that has just opened.
  virtual int64_t samples_at(int64_t barrier) const;
  // A line for people when all is computed; "": nothing to say.
  virtual std::string closing_notice() const { return ""; }

 protected:
  // Hands work that nobody has to workers that are there: enough of them.
  virtual void assign() = 0;
  int64_t replacement_timeout_ms() const;
  // Members that may be given work.
  int64_t workers_with_rank() const;
  // The job goes on without waiting for a replacement.
  bool continues() const { return setup_.job.on_worker_loss == OnWorkerLoss::kContinue; }
  // For the end of a job that has stood for too long.
  std::string stands_text() const;
  const WorkSetup& setup() const { return setup_; }

 private:
  const WorkSetup setup_;
  bool stood_ = false;  // and a line has said so
};

std::unique_ptr<WorkAssignment> make_work_assignment(const WorkSetup& setup);

}  // namespace pushpull
