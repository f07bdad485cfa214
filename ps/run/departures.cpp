#include "ps/run/departures.h"

#include <algorithm>
#include <vector>

#include "common/base/text.h"
#include "ps/run/stop_request.h"

namespace pushpull {

namespace {

// A signal to a whole job reaches its processes within milliseconds, from a launcher a little
// later.
constexpr int64_t kTogetherMs = 1000;
constexpr size_t kMaxWordsBytes = 1024;  // of a member's Leave
constexpr const char* kWeightsAreLost = "; its weights are gone, resume from the last checkpoint";

// Returns the member's error code, which becomes the job's exit code. A shell sees only the last
// byte: 256 would be success.
ErrorCode exit_code_of(const wire::Leave& leave) {
  const bool is_code = leave.code() > 0 && leave.code() < 128;
  return is_code ? static_cast<ErrorCode>(leave.code()) : ErrorCode::kPeerLost;
}

// Returns false if another process would end in the same way, or on the same broken device.
bool may_return(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
    case ErrorCode::kData:
    case ErrorCode::kProtocol:
    case ErrorCode::kNotFinite:
    case ErrorCode::kDevice:
      return false;
    default:
      return true;
  }
}

}  // namespace

Departures::Departures(const Job& job, Membership& members, Admission& admission, JobPhase& phase,
                       const std::unique_ptr<TrainingRun>& run, Actions& out)
    : job_(job),
      members_(members),
      admission_(admission),
      phase_(phase),
      run_(run),
      out_(out),
      stalls_(job, members) {}

void Departures::on_leave(int64_t now_ms, const wire::Leave& leave) {
  const MemberInfo* found = members_.find(leave.incarnation());
  if (found == nullptr) return;
  const MemberInfo member = *found;
  if (phase_.ending()) {
    members_.remove(member.incarnation);
    return;
  }
  if (leave.code() == 0) return lose(now_ms, member.incarnation, "it left", ErrorCode::kPeerLost);
  const ErrorCode code = exit_code_of(leave);
  if (code == ErrorCode::kStopped && member.role == wire::ROLE_WORKER) {
    const bool shared = phase_.training() && !job_.strategy.traits().workers_update;
    if (shared) return leave_early(now_ms, member);
    return lose(now_ms, member.incarnation, "its program has ended", ErrorCode::kPeerLost);
  }
  // A worker without work cannot have computed anything.
  const bool has_computed = run_ != nullptr && run_->has_work(member.incarnation);
  if (code != ErrorCode::kNotFinite || !has_computed) {
    return lose(now_ms, member.incarnation, printable(leave.text(), kMaxWordsBytes), code);
  }
  if (may_be_quarantined(member, leave)) {
    quarantined_.push_back(leave.failed());
    return lose(now_ms, member.incarnation,
                printable(leave.text(), kMaxWordsBytes) +
                    "; another worker computes it again (on-bad-gradient = quarantine)",
                code);
  }
  const ServerLogs* logs = run_ == nullptr ? nullptr : run_->logs();
  RecordedPush failed;  // not of a group: its worker knows only what its own stage has read
  if (logs != nullptr && leave.has_failed() && !logs->to_push(leave.failed(), failed)) {
    failed.rank = member.rank;
    failed_push_ = failed;
  }
  members_.remove(member.incarnation, leave.text(), now_ms);
  fail_by(now_ms, member, code, leave.text(), leave.text() + " (" + member.name() + ")");
}

// The worker's program needs no more of the job, so no other process must come in its place.
void Departures::leave_early(int64_t now_ms, const MemberInfo& worker) {
  members_.remove(worker.incarnation, "its program has ended", now_ms);
  out_.state_changed();
  if (worker.rank >= 0) out_.lost(worker);
  totals_.add(wire::ROLE_WORKER, worker.stats);
  const std::string text = "[job] " + worker.name() + " has left at step " +
                           std::to_string(run_->floor()) + ": its program has ended";
  const TrainingRun::Lost lost = run_->lose_worker(now_ms, worker);
  if (lost == TrainingRun::Lost::kPushes)
    return end_term(text + "; a lost server lacks its pushes");
  none_left_ = members_.count(wire::ROLE_WORKER) == 0;
  out_.notice(text + (none_left_ ? "; no worker is left" : "; the others go on"));
  admission_.promote_spares();
  run_->share_work_out();
}

// Returns false if another worker has found the same, or no other worker is left to check it.
bool Departures::may_be_quarantined(const MemberInfo& worker, const wire::Leave& leave) const {
  if (job_.on_bad_gradient != OnBadGradient::kQuarantine || !leave.has_failed()) return false;
  const wire::Applied& mine = leave.failed();
  const bool again = std::any_of(quarantined_.begin(), quarantined_.end(), [&](const auto& before) {
    return before.step() == mine.step() && before.lo() < mine.hi() && mine.lo() < before.hi();
  });
  const bool waits = job_.on_worker_loss == OnWorkerLoss::kWait;
  return !again && (waits || members_.count(worker.role) > 1);
}

void Departures::on_tick(int64_t now_ms) {
  for (const Membership::Loss& loss : members_.lost(now_ms)) {
    lose(now_ms, loss.incarnation, loss.reason, ErrorCode::kPeerLost);
  }
  if (members_.note_unheard(now_ms)) out_.state_changed();
  release_members(now_ms);
  if (!phase_.training()) return;
  run_->on_tick();
  const std::string overdue = run_->overdue(now_ms);
  if (!overdue.empty()) phase_.fail(now_ms, ErrorCode::kPeerLost, overdue, {});
  check_stalls(now_ms);
}

// Releases members that reported a request to end. If the job does not stop within kTogetherMs, the
// request was for that process alone.
void Departures::release_members(int64_t now_ms) {
  if (holds_members_) return;
  for (const auto& [incarnation, listed] : members_.all()) {
    if (listed.end_request_ms < 0 || listed.may_leave ||
        now_ms - listed.end_request_ms < kTogetherMs)
      continue;
    members_.find(incarnation)->may_leave = true;
    out_.state_changed();
  }
}

void Departures::check_stalls(int64_t now_ms) {
  if (lost_server_) return;  // all wait for the next term, which has a deadline of its own
  stalls_.on_tick(now_ms, *run_);
  if (const auto notice = stalls_.take_notice(now_ms, *run_)) out_.notice(*notice);
  const std::vector<Membership::Loss> stuck = stalls_.stuck(now_ms);
  for (const Membership::Loss& loss : stuck) {
    lose(now_ms, loss.incarnation, loss.reason, ErrorCode::kPeerLost);
  }
  if (!stuck.empty()) return;  // other workers may take over their work
  const std::string overdue = stalls_.overdue(now_ms, *run_);
  if (!overdue.empty()) phase_.fail(now_ms, ErrorCode::kPeerLost, overdue, {});
}

void Departures::fail_here(int64_t now_ms, const MemberInfo& self, ErrorCode code,
                           const std::string& reason) {
  const bool lost = code == ErrorCode::kDevice && run_ != nullptr;
  fail_by(now_ms, self, code, reason,
          lost ? lost_text(self, reason) + kWeightsAreLost : reason + " (" + self.name() + ")");
}

void Departures::fail_by(int64_t now_ms, const MemberInfo& member, ErrorCode code,
                         const std::string& reason, const std::string& text) {
  phase_.fail(now_ms, code, text, Culprit{member.host, member.pid, reason});
}

std::string Departures::lost_text(const MemberInfo& member, const std::string& reason) const {
  const std::string where =
      run_ == nullptr ? " before the start" : " at step " + std::to_string(run_->floor());
  return "[job] lost " + member.name() + where + ": " + reason;
}

void Departures::lose(int64_t now_ms, uint64_t incarnation, const std::string& reason,
                      ErrorCode code) {
  const MemberInfo* found = members_.find(incarnation);
  if (found == nullptr) return;
  const MemberInfo member = *found;
  if (phase_.ending()) {
    members_.remove(incarnation);
  } else {
    members_.remove(incarnation, reason, now_ms);
  }
  out_.state_changed();
  if (phase_.ending()) return;
  if (phase_.training() && member.rank >= 0) out_.lost(member);
  if (phase_.gathering()) {
    const std::string text = lost_text(member, reason);
    if (!has_successor(member, code)) return fail_by(now_ms, member, code, reason, text);
    out_.notice(text + "; the job waits for another");
    admission_.forget(member);
  } else if (member.role == wire::ROLE_SERVER) {
    lose_server(now_ms, member, reason, code);
  } else {
    lose_worker(now_ms, member, reason, code);
  }
  if (!phase_.failed() && may_return(code)) out_.gave_up(member);
}

// Returns false if no other process can come in the place of this one before the start: `pushpull run`
// starts a killed server again, and with on-worker-loss = wait a worker.
bool Departures::has_successor(const MemberInfo& member, ErrorCode code) const {
  if (!member.launched) return true;
  const bool waits = member.role == wire::ROLE_SERVER
                         ? job_.on_server_loss == OnServerLoss::kRestart
                         : job_.on_worker_loss == OnWorkerLoss::kWait;
  return waits && may_return(code);
}

void Departures::lose_server(int64_t now_ms, const MemberInfo& server, const std::string& reason,
                             ErrorCode code) {
  const std::string text = lost_text(server, reason);
  const bool restarts = job_.on_server_loss == OnServerLoss::kRestart && may_return(code);
  if (!restarts) return fail_by(now_ms, server, code, reason, text + kWeightsAreLost);
  if (run_->replaceable(now_ms, server)) {
    return out_.notice(text +
                       "; waiting for a replacement, which continues from its weights of step " +
                       std::to_string(run_->places().copied_step()));
  }
  end_term(text);
}

// Until the next term begins, no server joins this one: it would wait for pushes that went to the
// lost one.
void Departures::end_term(const std::string& text) {
  lost_server_ = text;
  admission_.hold_servers();
}

// Returns what on-worker-loss = abort loses, and the settings that avoid it.
std::string Departures::abort_text() const {
  const std::optional<int64_t>& saved = run_->snapshots().saved_step();
  std::string text = "; on-worker-loss=abort: " + RunSaved{run_->floor(), saved}.loss();
  if (saved) text += "; the same command with --resume auto goes on";
  // In all-reduce the job cannot wait.
  const bool may_wait = !job_.strategy.traits().workers_update;
  return text + (may_wait ? "; on-worker-loss = wait would wait for another worker" : "");
}

void Departures::lose_worker(int64_t now_ms, const MemberInfo& worker, const std::string& reason,
                             ErrorCode code) {
  const std::string text = lost_text(worker, reason);
  totals_.add(wire::ROLE_WORKER, worker.stats);
  if (worker.rank >= 0) ++workers_lost_;
  const TrainingRun::Lost lost = run_->lose_worker(now_ms, worker);
  const bool had_work = lost != TrainingRun::Lost::kNoWork;
  if (had_work && job_.on_worker_loss == OnWorkerLoss::kAbort) {
    return fail_by(now_ms, worker, code, text + abort_text(), text + abort_text());
  }
  if (lost == TrainingRun::Lost::kPushes) {
    return end_term(text + "; a lost server lacks its pushes");
  }
  const bool waits = job_.on_worker_loss == OnWorkerLoss::kWait;
  const bool others = members_.count(wire::ROLE_WORKER) > 0;
  out_.notice(text + (!had_work ? ""
                      : waits   ? "; waiting for a replacement"
                      : others  ? "; the others go on"
                                : "; no worker is left, waiting for one"));
  admission_.promote_spares();
  run_->assign_work();
}

}  // namespace pushpull
