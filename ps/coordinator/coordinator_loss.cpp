// Coordinator: members that leave or are lost, and how the job ends.
#include <algorithm>

#include "ps/coordinator/coordinator.h"

namespace pushpull {

namespace {

constexpr int64_t kStateIntervalMs = 500;  // at most; several within a heartbeat-timeout
constexpr int64_t kFinishDeadlineMs = 5000;
constexpr const char* kWeightsAreGone = "; its weights are gone, resume from the last checkpoint";

}  // namespace

void Coordinator::fail(ErrorCode code, const std::string& text) {
  if (phase_ == wire::PHASE_FAILED) return;
  failure_code_ = code;
  failure_text_ = text;
  wants_start_ = false;
  wants_summary_ = false;
  change_phase(wire::PHASE_FAILED);
}

void Coordinator::fail_by(const MemberInfo& member, ErrorCode code, const std::string& reason,
                          const std::string& text) {
  if (phase_ == wire::PHASE_FAILED) return;
  culprit_ = {member.host, member.pid, reason};
  fail(code, text);
}

void Coordinator::fail_here(ErrorCode code, const std::string& reason) {
  const MemberInfo& self = *members_.find(options_.self.incarnation);
  const bool lost = code == ErrorCode::kDevice && training_;
  fail_by(self, code, reason,
          lost ? lost_text(self, reason) + kWeightsAreGone : reason + " (" + self.name() + ")");
}

void Coordinator::finish() {
  wants_summary_ = false;
  change_phase(wire::PHASE_FINISHED);
}

bool Coordinator::on_leave(int64_t now_ms, const wire::Leave& leave) {
  MemberInfo* member = members_.find(leave.incarnation());
  if (member == nullptr) return true;
  if (leave.code() == 0 || phase_ >= wire::PHASE_FINISHED) {
    if (phase_ >= wire::PHASE_FINISHED) {
      members_.remove(leave.incarnation());
    } else {
      lose(now_ms, leave.incarnation(), "it left", ErrorCode::kPeerLost);
    }
    return true;
  }
  // it becomes our exit code, of which a shell sees the last byte: 256 would be a success
  const bool is_code = leave.code() > 0 && leave.code() < 128;
  const auto code = is_code ? static_cast<ErrorCode>(leave.code()) : ErrorCode::kPeerLost;
  // who has not declared cannot have computed anything
  const bool everybodys =
      (code == ErrorCode::kNotFinite && member->declared) || phase_ == wire::PHASE_GATHERING;
  if (everybodys) {
    const MemberInfo who = *member;
    RecordedPush failed;
    if (logs_ && leave.has_failed() && logs_->to_push(leave.failed(), failed)) {
      failed.rank = member->rank;
      failed_push_ = failed;
    }
    members_.remove(leave.incarnation());
    fail_by(who, code, leave.text(), leave.text() + " (" + who.name() + ")");
  } else {
    lose(now_ms, leave.incarnation(), leave.text(), code);
  }
  return true;
}

std::string Coordinator::lost_text(const MemberInfo& member, const std::string& reason) const {
  const std::string where =
      training_ ? " at step " + std::to_string(training_->floor()) : " before the start";
  return "[job] lost " + member.name() + where + ": " + reason;
}

void Coordinator::lose(int64_t now_ms, uint64_t incarnation, const std::string& reason,
                       ErrorCode code) {
  const MemberInfo* found = members_.find(incarnation);
  if (found == nullptr) return;
  const MemberInfo member = *found;
  members_.remove(incarnation);
  ++state_version_;
  dirty_ = true;
  if (phase_ >= wire::PHASE_FINISHED) return;
  if (phase_ == wire::PHASE_GATHERING && member.role == wire::ROLE_WORKER) {
    notices_.push_back(lost_text(member, reason));
    promote_spares();
    check_start();
    return;
  }
  if (member.role == wire::ROLE_SERVER) {
    fail_by(member, code, reason, lost_text(member, reason) + kWeightsAreGone);
    return;
  }
  lose_worker(now_ms, member, reason, code);
}

void Coordinator::lose_worker(int64_t now_ms, const MemberInfo& member, const std::string& reason,
                              ErrorCode code) {
  const std::string text = lost_text(member, reason);
  departed_.add(wire::ROLE_WORKER, member.stats);
  if (pool_) pool_->lose(member.incarnation);
  bool had_work = pool_ != nullptr && member.rank >= 0;
  for (ShareOwner& share : share_owners_) {
    if (share.owner != member.incarnation) continue;
    had_work = true;
    share.owner = 0;
    share.vacant_since_ms = now_ms;
    // its last push may not have reached every server; servers drop what they have
    share.from_step = std::max(barriers_.start_step, share.clock - 1);
  }
  for (ShareOwner& share : share_owners_) {
    if (share.evaluator == member.incarnation) share.evaluator = 0;
  }
  if (!had_work || phase_ != wire::PHASE_TRAINING) {
    notices_.push_back(text);
    return;
  }
  if (options_.job.on_worker_loss == OnWorkerLoss::kAbort) {
    fail_by(member, code, reason, text + "; on-worker-loss=abort");
    return;
  }
  notices_.push_back(
      text + (options_.job.on_worker_loss == OnWorkerLoss::kWait ? "; waiting for a replacement"
              : members_.count(wire::ROLE_WORKER) > 0            ? "; the others go on"
                                                      : "; waiting for another, none is left"));
  fill_vacancies();
}

void Coordinator::give_share(ShareOwner& share, uint64_t incarnation) {
  share.owner = incarnation;
  share.evaluator = 0;
  share.vacant_since_ms = -1;
  // evaluations that are not complete may lack its chunks
  if (backup()) share.from_step = evaluated_barrier();
  const MemberInfo* member = members_.find(incarnation);
  notices_.push_back("micro-batches " + std::to_string(share.range.lo) + " to " +
                     std::to_string(share.range.hi - 1) + " go to " + member->name());
  ++state_version_;
  dirty_ = true;
}

void Coordinator::promote_spares() {
  for (auto& [incarnation, member] : members_.all()) {
    if (member.role != wire::ROLE_WORKER || !member.declared || member.rank >= 0) continue;
    member.rank = free_rank();
    if (member.rank >= 0) {
      notices_.push_back(member.name() + " was a spare and takes the free place");
      ++state_version_;
      dirty_ = true;
    }
  }
}

uint64_t Coordinator::least_loaded(int64_t below) const {
  uint64_t best = 0;
  for (const auto& [incarnation, member] : members_.all()) {
    if (member.role != wire::ROLE_WORKER || member.rank < 0) continue;
    const uint64_t who = incarnation;  // clang 14 captures no structured binding
    const auto load = std::count_if(share_owners_.begin(), share_owners_.end(),
                                    [who](const ShareOwner& s) { return s.owner == who; });
    if (load < below) {
      best = incarnation;
      below = load;
    }
  }
  return best;
}

// Free ranks go to spares first; vacant shares to idle workers, and where the job says `continue`
// to busy ones, the least loaded first: in backup:B only as many as a step needs.
void Coordinator::fill_vacancies() {
  if (phase_ != wire::PHASE_TRAINING) return;
  promote_spares();
  auto owned = std::count_if(share_owners_.begin(), share_owners_.end(),
                             [](const ShareOwner& share) { return share.owner != 0; });
  for (ShareOwner& share : share_owners_) {
    if (share.owner != 0) continue;
    uint64_t best = least_loaded(1);
    if (best == 0 && options_.job.on_worker_loss == OnWorkerLoss::kContinue &&
        owned < needed_shares()) {
      best = least_loaded(INT64_MAX);
    }
    if (best == 0) continue;
    give_share(share, best);
    ++owned;
  }
  if (backup() && options_.job.on_worker_loss == OnWorkerLoss::kContinue) find_evaluators();
}

void Coordinator::check_vacancies(int64_t now_ms) {
  if (phase_ != wire::PHASE_TRAINING) return;
  const auto timeout_ms = static_cast<int64_t>(options_.job.replacement_timeout_s * 1000);
  if (pool_ && members_.count(wire::ROLE_WORKER) > 0) empty_since_ms_ = -1;
  if (pool_ && members_.count(wire::ROLE_WORKER) == 0) {
    if (empty_since_ms_ < 0) empty_since_ms_ = now_ms;
    if (now_ms - empty_since_ms_ > timeout_ms) {
      fail(ErrorCode::kPeerLost,
           "[job] no worker is left, and none has joined within "
           "replacement-timeout = " +
               seconds_text(timeout_ms) + " s");
    }
  }
  for (const ShareOwner& share : share_owners_) {
    if (share.owner != 0 || now_ms - share.vacant_since_ms <= timeout_ms) continue;
    // backup:B goes on without it
    if (share.evaluator != 0) continue;
    fail(ErrorCode::kPeerLost,
         "[job] no worker has come for micro-batches " + std::to_string(share.range.lo) + " to " +
             std::to_string(share.range.hi - 1) +
             " within replacement-timeout = " + seconds_text(timeout_ms) + " s");
  }
}

void Coordinator::check_finish(int64_t now_ms) {
  if (phase_ == wire::PHASE_TRAINING && training_->floor() >= barriers_.end_step &&
      written_barrier_ >= barriers_.end_step && evaluations_->complete(barriers_.end_step)) {
    change_phase(wire::PHASE_FINISHING);
    say_dropped();
  }
  const bool late = now_ms - phase_since_ms_ > kFinishDeadlineMs;
  if (phase_ == wire::PHASE_FINISHING) {
    const auto& all = members_.all();
    const bool reported = std::all_of(all.begin(), all.end(), [&](const auto& entry) {
      return entry.second.peer.empty() || entry.second.state_version >= state_version_;
    });
    wants_summary_ = (reported && logs_are_whole()) || late;
  }
  if (phase_ == wire::PHASE_FINISHED || phase_ == wire::PHASE_FAILED) {
    over_ = members_.all().size() <= 1 || late;
  }
}

// ---- the record ----

bool Coordinator::on_record_part(const PeerId& peer, const wire::RecordPart& part) {
  const MemberInfo* member = members_.find(part.incarnation());
  if (member == nullptr || member->role != wire::ROLE_SERVER || !logs_) return false;
  if (!logs_->take(member->rank, part)) return false;
  Message taken;
  taken.header.mutable_record_taken()->set_through(logs_->have(member->rank));
  outgoing_.push_back({peer, std::move(taken)});
  return true;
}

// A server says in its last Stats how much it has logged; the one in this process passes all on in
// each turn.
bool Coordinator::logs_are_whole() const {
  if (!logs_) return true;
  const auto& all = members_.all();
  return std::all_of(all.begin(), all.end(), [&](const auto& entry) {
    const MemberInfo& member = entry.second;
    return member.role != wire::ROLE_SERVER || member.peer.empty() ||
           logs_->have(member.rank) >= member.stats.recorded();
  });
}

void Coordinator::on_tick(int64_t now_ms) {
  now_ms_ = now_ms;
  for (const Membership::Loss& loss : members_.lost(now_ms)) {
    lose(now_ms, loss.incarnation, loss.reason, ErrorCode::kPeerLost);
  }
  check_vacancies(now_ms);
  check_finish(now_ms);
  const auto interval_ms =
      std::min(kStateIntervalMs, static_cast<int64_t>(options_.job.heartbeat_timeout_s * 200));
  if (dirty_ || now_ms - last_sent_ms_ >= interval_ms) send_states();
}

}  // namespace pushpull
