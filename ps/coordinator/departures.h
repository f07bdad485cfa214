// Members that leave or are lost: what that means for the job, and what remains of them. Part of
// the coordinator's state machine; one thread.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/io/record.h"
#include "common/job/job.h"
#include "ps/coordinator/job_phase.h"
#include "ps/coordinator/stall_watch.h"
#include "ps/coordinator/training_run.h"
#include "ps/files/run_totals.h"
#include "ps/members/actions.h"
#include "ps/members/admission.h"
#include "ps/members/membership.h"

namespace pushpull {

class Departures {
 public:
  // Borrows everything for its own lifetime.
  Departures(const Job& job, Membership& members, Admission& admission, JobPhase& phase,
             Actions& out);
  // Training has started.
  void set_run(TrainingRun* run) {
    run_ = run;
    stalls_.emplace(job_, members_, *run);
  }

  // A member's last words. One that nobody knows has left before.
  void on_leave(int64_t now_ms, const wire::Leave& leave);
  // Members that have fallen silent or stand still, and work that nobody has come for in time.
  void on_tick(int64_t now_ms);
  // The whole job is about to stop: nobody who is told to end is let go.
  void keep_told() { keeps_told_ = true; }
  // The server in this process has failed.
  void fail_here(int64_t now_ms, const MemberInfo& self, ErrorCode code, const std::string& reason);

  // A server is lost that nobody can replace within the term: the job goes back to a checkpoint once
  // another is there. What happened.
  const std::optional<std::string>& lost_server() const { return lost_server_; }
  // The totals of workers that are gone, as they last reported them.
  const RunTotals& totals() const { return totals_; }
  // Workers that are gone because of a loss or gradient, while the job goes on.
  int64_t quarantined() const { return std::ssize(quarantined_); }
  // The push whose loss or gradient was not finite, where that has ended the job.
  const std::optional<RecordedPush>& failed_push() const { return failed_push_; }

 private:
  void fail_by(int64_t now_ms, const MemberInfo& member, ErrorCode code, const std::string& reason,
               const std::string& text);
  void let_go(int64_t now_ms);
  bool may_be_quarantined(const MemberInfo& worker, const wire::Leave& leave) const;
  void check_stalls(int64_t now_ms);
  void lose(int64_t now_ms, uint64_t incarnation, const std::string& reason, ErrorCode code);
  void lose_server(int64_t now_ms, const MemberInfo& server, const std::string& reason,
                   ErrorCode code);
  void lose_worker(int64_t now_ms, const MemberInfo& worker, const std::string& reason,
                   ErrorCode code);
  std::string lost_text(const MemberInfo& member, const std::string& reason) const;

  const Job& job_;
  Membership& members_;
  Admission& admission_;
  JobPhase& phase_;
  Actions& out_;
  TrainingRun* run_ = nullptr;  // null: before the start
  std::optional<StallWatch> stalls_;
  std::optional<std::string> lost_server_;
  bool keeps_told_ = false;
  RunTotals totals_;
  std::vector<wire::Applied> quarantined_;  // what they could not push
  std::optional<RecordedPush> failed_push_;
};

}  // namespace pushpull
