// Handles members that leave or are lost: the effect on the job, and the totals that remain of
// them. Part of the coordinator's state machine. Not thread-safe.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/io/record.h"
#include "ps/members/actions.h"
#include "ps/members/admission.h"
#include "ps/members/membership.h"
#include "ps/report/run_totals.h"
#include "ps/run/job_phase.h"
#include "ps/run/stall_watch.h"
#include "ps/run/training_run.h"

namespace pushpull {

struct Job;

class Departures {
 public:
  // Borrows everything for its own lifetime.
  //   run: null before the start.
  Departures(const Job& job, Membership& members, Admission& admission, JobPhase& phase,
             const std::unique_ptr<TrainingRun>& run, Actions& out);

  // Handles Leave. Ignores a process that is not a member: it has left before.
  void on_leave(int64_t now_ms, const wire::Leave& leave);
  // Handles members that have gone silent or are stuck, and work that no worker has taken over in
  // time.
  void on_tick(int64_t now_ms);
  // Call when the whole job is about to stop: releases no member that was asked to end.
  void hold_members() { holds_members_ = true; }
  // Ends the job because the server in this process has failed.
  void fail_here(int64_t now_ms, const MemberInfo& self, ErrorCode code, const std::string& reason);

  // Describes the loss of a server that cannot be replaced within the term, or of a worker with
  // pushes that a lost server still lacks; empty until then. The job then returns to a checkpoint
  // in a new term.
  const std::optional<std::string>& lost_server() const { return lost_server_; }
  // The totals of workers that left or were lost, as last reported.
  const RunTotals& totals() const { return totals_; }
  // The number of workers with a place that left or were lost in training.
  int64_t workers_lost() const { return workers_lost_; }
  // The number of workers that left because of a bad loss or gradient while the job continued.
  int64_t quarantined() const { return std::ssize(quarantined_); }
  // Returns true if workers have left by themselves and none is left.
  bool none_left() const { return none_left_; }
  // The push with the loss or gradient that was not finite, if that ended the job.
  const std::optional<RecordedPush>& failed_push() const { return failed_push_; }

 private:
  void fail_by(int64_t now_ms, const MemberInfo& member, ErrorCode code, const std::string& reason,
               const std::string& text);
  void release_members(int64_t now_ms);
  bool may_be_quarantined(const MemberInfo& worker, const wire::Leave& leave) const;
  void check_stalls(int64_t now_ms);
  void lose(int64_t now_ms, uint64_t incarnation, const std::string& reason, ErrorCode code);
  void lose_server(int64_t now_ms, const MemberInfo& server, const std::string& reason,
                   ErrorCode code);
  void lose_worker(int64_t now_ms, const MemberInfo& worker, const std::string& reason,
                   ErrorCode code);
  void leave_early(int64_t now_ms, const MemberInfo& worker);
  void end_term(const std::string& text);
  std::string lost_text(const MemberInfo& member, const std::string& reason) const;
  std::string abort_text() const;
  bool has_successor(const MemberInfo& member, ErrorCode code) const;

  const Job& job_;
  Membership& members_;
  Admission& admission_;
  JobPhase& phase_;
  const std::unique_ptr<TrainingRun>& run_;  // null before the start
  Actions& out_;
  StallWatch stalls_;
  std::optional<std::string> lost_server_;
  bool holds_members_ = false;
  bool none_left_ = false;
  RunTotals totals_;
  int64_t workers_lost_ = 0;
  std::vector<wire::Applied> quarantined_;  // the work that each could not push
  std::optional<RecordedPush> failed_push_;
};

}  // namespace pushpull
