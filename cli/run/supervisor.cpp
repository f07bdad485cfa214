#include "cli/run/supervisor.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "common/base/error.h"
#include "common/base/process.h"

namespace pushpull {

std::optional<Ending> Failures::of(size_t slot) const {
  const auto found = by_slot_.find(slot);
  return found == by_slot_.end() ? std::nullopt : std::optional(found->second.ending);
}

size_t Failures::cause() const {
  if (blame_) return blame_->slot;
  PP_ASSERT(any());
  const auto rank = [](const auto& entry) {
    return std::pair(entry.second.ending.is_consequence(), entry.second.order);
  };
  return std::min_element(by_slot_.begin(), by_slot_.end(),
                          [&](const auto& a, const auto& b) { return rank(a) < rank(b); })
      ->first;
}

Supervisor::Supervisor(const SupervisorOptions& options)
    : options_(options),
      members_(static_cast<size_t>(options.servers + options.workers)),
      replacements_(options.replacement, members_.size()) {
  PP_ASSERT(options.servers > 0 && options.workers >= 0);
}

bool Supervisor::is_worker(size_t slot) const {
  return slot >= static_cast<size_t>(options_.servers);
}

std::string Supervisor::name(size_t slot) const {
  if (is_worker(slot) && is_step()) return options_.step;
  return is_worker(slot) ? "worker " + std::to_string(slot - static_cast<size_t>(options_.servers))
                         : "server " + std::to_string(slot);
}

std::string Supervisor::who(size_t slot) const {
  return "[run] " + name(slot) + " (pid " + std::to_string(members_[slot].pid) + ") ";
}

void Supervisor::started(size_t slot, int64_t pid) {
  members_[slot].pid = pid;
  members_[slot].alive = true;
  replacements_.started(slot);
}

bool Supervisor::all_ended() const {
  return !replacements_.pending() &&
         std::none_of(members_.begin(), members_.end(), [](const Member& m) { return m.alive; });
}

bool Supervisor::may_be_lost(size_t slot, const Ending& ending) const {
  const bool in_quarantine = options_.quarantine && training_began_ && ending.signal == 0 &&
                             ending.code == static_cast<int>(ErrorCode::kNotFinite);
  // Its tasks end with 0 if the job may go on without them.
  if (is_worker(slot) && is_step() && phase_ != Phase::kFinishing) return false;
  // Once the job is done, no worker can fail it.
  if (!is_worker(slot) || (ending.is_for_good() && !in_quarantine && phase_ != Phase::kFinishing)) {
    return false;
  }
  if (!training_began_) {
    return options_.on_worker_loss == OnWorkerLoss::kWait && !ending.is_for_good_here();
  }
  switch (options_.on_worker_loss) {
    case OnWorkerLoss::kAbort:
      return false;
    case OnWorkerLoss::kWait:
      return true;
    case OnWorkerLoss::kContinue:
      break;
  }
  // Some worker must remain, or the work must be done.
  for (size_t other = 0; other < slots(); ++other) {
    if (is_worker(other) && (members_[other].alive || members_[other].succeeded)) {
      return true;
    }
  }
  return phase_ == Phase::kFinishing;
}

// Returns true if the job waits for another process in the place of this one.
bool Supervisor::may_replace(size_t slot) const {
  if (is_worker(slot) && is_step()) return false;
  const bool waits = is_worker(slot) ? options_.on_worker_loss == OnWorkerLoss::kWait
                                     : options_.on_server_loss == OnServerLoss::kRestart;
  return waits && listens_ && is_active() && replacements_.left(slot);
}

// Returns true if the server may be replaced after this end. A coordinator that ends by itself ends
// the job; before training begins, a server that ends by itself would do so again.
bool Supervisor::will_restart(size_t slot, const Ending& ending) const {
  if (is_worker(slot) || !may_replace(slot)) return false;
  if (ending.signal != 0) return true;
  const bool may_return = training_began_ && !ending.is_for_good_here();
  return slot != 0 && (ending.was_asked_for() || may_return);
}

SupervisorActions Supervisor::ended(size_t slot, const Ending& ending, int64_t now_ms) {
  members_[slot].alive = false;
  const bool well = ending.success() || ending.stopped();
  members_[slot].succeeded = well;
  stopped_ = stopped_ || ending.stopped();
  SupervisorActions actions;
  replacements_.forget(slot);
  if (!well) {
    if (running() && may_be_lost(slot, ending)) {
      lost_worker(slot, ending, now_ms, actions);
    } else if (!will_restart(slot, ending)) {
      failed(slot, ending, now_ms, actions);
    } else if (replacements_.ended(slot, ending, now_ms)) {
      replace(slot, ending, actions);
    }
  } else if (slot == 0 && is_active()) {
    phase_ = Phase::kFinishing;
    began_ms_ = now_ms;
    fail_pending(now_ms, actions);
    // A worker that came too late would wait for the coordinator.
    actions.end = replacements_.replaced_from(static_cast<size_t>(options_.servers));
  } else if (is_worker(slot) && ending.success() && replacements_.ended_well(slot) &&
             may_replace(slot)) {
    replace(slot, ending, actions);
  }
  if (phase_ == Phase::kSettling && all_ended()) settle(actions);
  // A signal that arrives after the job is done changes nothing.
  if (all_ended() && !gave_up_ && !failures_.any() && phase_ != Phase::kKilled) {
    exit_code_ = stopped_ ? static_cast<int>(ErrorCode::kStopped) : 0;
  }
  return actions;
}

void Supervisor::failed(size_t slot, const Ending& ending, int64_t now_ms,
                        SupervisorActions& actions) {
  if (slot != 0 && !is_worker(slot) && replacements_.any(slot) && ending.is_consequence()) {
    // The replacement came too late. The coordinator decides whether that matters.
    actions.say.push_back(who(slot) + ending.describe());
    return;
  }
  failures_.add(slot, ending);
  if (!running()) return;
  phase_ = Phase::kSettling;
  began_ms_ = now_ms;
  actions.hold = true;
  fail_pending(now_ms, actions);
}

// No process is replaced any more.
void Supervisor::fail_pending(int64_t now_ms, SupervisorActions& actions) {
  for (const Replacements::Pending& pending : replacements_.take_all()) {
    not_replaced(pending, now_ms, actions);
  }
}

void Supervisor::not_replaced(const Replacements::Pending& pending, int64_t now_ms,
                              SupervisorActions& actions) {
  if (is_worker(pending.slot)) {
    actions.say.push_back(who(pending.slot) + pending.ending.describe());
  } else {
    failed(pending.slot, pending.ending, now_ms, actions);
  }
}

void Supervisor::lost_worker(size_t slot, const Ending& ending, int64_t now_ms,
                             SupervisorActions& actions) {
  const std::string lost = who(slot) + ending.describe();
  if (phase_ == Phase::kFinishing) {
    actions.say.push_back(lost + " after the job was done");
  } else if (options_.on_worker_loss == OnWorkerLoss::kContinue) {
    actions.say.push_back(lost + "; the job goes on without it");
  } else if (!replacements_.left(slot)) {
    actions.say.push_back(lost + "; it was replaced " + std::to_string(replacements_.most()) +
                          " times, the job waits for a worker from elsewhere");
  } else if (!ending.was_asked_for() || replacements_.ended(slot, ending, now_ms)) {
    replace(slot, ending, actions);
  }
}

void Supervisor::replace(size_t slot, const Ending& ending, SupervisorActions& actions) {
  actions.restart = slot;
  actions.say.push_back(who(slot) + ending.describe() + "; " + replacements_.count(slot));
}

SupervisorActions Supervisor::given_up(int64_t pid, int64_t now_ms) {
  SupervisorActions actions;
  for (size_t slot = 1; slot < slots(); ++slot) {
    if (members_[slot].pid != pid || !may_replace(slot)) continue;
    const auto pending = replacements_.given_up(slot, members_[slot].alive, now_ms);
    if (pending) replace(slot, pending->ending, actions);
  }
  return actions;
}

// Takes one due decision, because an action has one restart. Returns false if there is none.
bool Supervisor::decide_one(int64_t now_ms, SupervisorActions& actions) {
  if (const auto slot = replacements_.take_kill(now_ms)) {
    actions.kill = slot;
    actions.say.push_back(who(*slot) + "is given up by the coordinator and has not ended; killed");
    return true;
  }
  const auto pending = replacements_.take_due(now_ms);
  if (!pending) return false;
  // Before the start a job that is asked to end has nothing to save.
  const bool over = phase_ == Phase::kStopRequested && !training_began_;
  if (pending->replace && !over && may_replace(pending->slot)) {
    replace(pending->slot, pending->ending, actions);
  } else {
    not_replaced(*pending, now_ms, actions);
  }
  return true;
}

bool Supervisor::blamed(int64_t pid, int code, const std::string& reason) {
  for (size_t slot = 0; slot < slots(); ++slot) {
    if (members_[slot].pid != pid) continue;
    failures_.blame({slot, code, reason});
    return running() || phase_ == Phase::kSettling;
  }
  return false;
}

void Supervisor::settle(SupervisorActions& actions) {
  const size_t slot = failures_.cause();
  const std::optional<Ending> failure = failures_.of(slot);
  const std::optional<Failures::Blame>& blame = failures_.blamed();
  // The blamed process may still be ending, since the coordinator waits for the others. After a
  // signal, no process is blamed for the signal's effects.
  if (!request_.asked() || blame) {
    exit_code_ = failure ? failure->exit_code() : blame->code;
  } else if (stopped_) {
    exit_code_ = static_cast<int>(ErrorCode::kStopped);
  }
  actions.release = slot;
  const std::string how = failure ? failure->describe() : "failed with " + code_text(blame->code);
  actions.say.push_back(who(slot) + how + (blame ? ": " + blame->reason : "") +
                        (all_ended() ? "" : "; stopping the others"));
  stop(actions, SIGTERM);
}

void Supervisor::stop(SupervisorActions& actions, int signal) {
  actions.signal_all = signal;
  phase_ = signal == SIGKILL ? Phase::kKilled : Phase::kStopping;
  fail_pending(began_ms_, actions);
}

SupervisorActions Supervisor::signalled(int signal, int64_t now_ms) {
  SupervisorActions actions;
  if (phase_ == Phase::kKilled) return actions;
  // If the other processes have been told to end, the first Ctrl-C ends their grace period.
  const bool ending = phase_ == Phase::kStopping || phase_ == Phase::kSettling;
  const bool impatient = ending && !request_.asked() && signal == SIGINT;
  const bool first = !ending && !request_.asked();
  if (request_.take(now_ms, signal) || impatient) {
    if (phase_ == Phase::kSettling) {
      settle(actions);
    } else if (phase_ == Phase::kStopRequested) {
      exit_code_ = 128 + signal;
    }
    actions.say.push_back("[run] SIGINT again: killing what still runs");
    stop(actions, SIGKILL);
    return actions;
  }
  if (!first) return actions;
  exit_code_ = 128 + signal;
  began_ms_ = now_ms;
  actions.release = slots();
  actions.say.push_back("[run] " + signal_name(signal) + ": stopping the job" +
                        (signal == SIGINT ? "; once more kills it" : ""));
  if (phase_ == Phase::kFinishing || !members_.front().alive) {
    stop(actions, signal);
  } else {
    actions.signal_coordinator = signal;
    phase_ = Phase::kStopRequested;
  }
  return actions;
}

SupervisorActions Supervisor::listens_again() const {
  SupervisorActions actions;
  if (phase_ == Phase::kStopRequested) actions.signal_coordinator = request_.signal();
  return actions;
}

SupervisorActions Supervisor::give_up(const std::string& text, int code, int64_t now_ms) {
  SupervisorActions actions;
  if (phase_ != Phase::kRunning) return actions;
  gave_up_ = true;
  exit_code_ = code;
  began_ms_ = now_ms;
  actions.release = slots();
  actions.say.push_back("[run] " + text);
  stop(actions, SIGTERM);
  return actions;
}

SupervisorActions Supervisor::tick(int64_t now_ms) {
  SupervisorActions actions;
  if (phase_ == Phase::kSettling) {  // a process that is killed now would look like the cause
    if (now_ms >= began_ms_ + options_.settle_ms) settle(actions);
    return actions;
  }
  if (phase_ != Phase::kKilled && decide_one(now_ms, actions)) return actions;
  if (phase_ == Phase::kStopRequested && now_ms >= began_ms_ + options_.stop_ms) {
    actions.say.push_back("[run] the coordinator did not stop the job within " +
                          std::to_string(options_.stop_ms / 1000) + " s; ending all processes");
    began_ms_ = now_ms;
    stop(actions, SIGTERM);
    return actions;
  }
  const bool finishing = phase_ == Phase::kFinishing;
  const int64_t most_ms = finishing ? options_.finish_ms : options_.grace_ms;
  if (!(finishing || phase_ == Phase::kStopping) || now_ms < began_ms_ + most_ms) return actions;
  for (size_t slot = 0; slot < slots(); ++slot) {
    if (!members_[slot].alive) continue;
    actions.say.push_back(who(slot) + "did not end within " + std::to_string(most_ms / 1000) +
                          " s; killed");
    // With on-worker-loss = abort, the job succeeds only if every process does.
    if (finishing && !may_be_lost(slot, {.code = 0, .signal = SIGKILL})) {
      exit_code_ = 128 + SIGKILL;
    }
  }
  stop(actions, SIGKILL);
  return actions;
}

std::optional<int64_t> Supervisor::deadline_ms() const {
  switch (phase_) {
    case Phase::kRunning:
      return replacements_.deadline_ms(std::nullopt);
    case Phase::kStopRequested:
      return replacements_.deadline_ms(began_ms_ + options_.stop_ms);
    case Phase::kSettling:
      return began_ms_ + options_.settle_ms;
    case Phase::kFinishing:
      return replacements_.deadline_ms(began_ms_ + options_.finish_ms);
    case Phase::kStopping:
      return replacements_.deadline_ms(began_ms_ + options_.grace_ms);
    case Phase::kKilled:
      break;
  }
  return std::nullopt;
}

void Replacements::started(size_t slot) {
  Slot& of = all_[slot];
  of.given_up = false;
  of.ended_well = false;
  of.kill_ms.reset();
  of.pending.reset();
}

bool Replacements::ended(size_t slot, const Ending& ending, int64_t now_ms) {
  Slot& of = all_[slot];
  of.kill_ms.reset();
  const bool asked = ending.was_asked_for();
  if (of.given_up || (ending.signal != 0 && !asked)) return true;
  const int64_t wait_ms = asked ? options_.together_ms : options_.report_ms;
  of.pending = {slot, ending, now_ms + wait_ms, asked};
  return false;
}

bool Replacements::ended_well(size_t slot) {
  forget(slot);
  all_[slot].ended_well = true;
  return all_[slot].given_up;
}

std::optional<Replacements::Pending> Replacements::given_up(size_t slot, bool alive,
                                                            int64_t now_ms) {
  Slot& of = all_[slot];
  of.given_up = true;
  if (alive) of.kill_ms = now_ms + options_.leave_ms;
  if (of.ended_well) return Pending{.slot = slot, .ending = {}};
  return std::exchange(of.pending, std::nullopt);
}

std::string Replacements::count(size_t slot) {
  return "starting a replacement, " + std::to_string(++all_[slot].made) + " of at most " +
         std::to_string(options_.most);
}

std::optional<size_t> Replacements::take_kill(int64_t now_ms) {
  for (size_t slot = 0; slot < all_.size(); ++slot) {
    if (!all_[slot].kill_ms || now_ms < *all_[slot].kill_ms) continue;
    all_[slot].kill_ms.reset();
    return slot;
  }
  return std::nullopt;
}

std::optional<Replacements::Pending> Replacements::take_due(int64_t now_ms) {
  for (Slot& of : all_) {
    if (of.pending && now_ms >= of.pending->until_ms) {
      return std::exchange(of.pending, std::nullopt);
    }
  }
  return std::nullopt;
}

std::vector<Replacements::Pending> Replacements::take_all() {
  std::vector<Pending> out;
  for (Slot& of : all_) {
    if (of.pending) out.push_back(*std::exchange(of.pending, std::nullopt));
  }
  return out;
}

std::vector<size_t> Replacements::replaced_from(size_t first) const {
  std::vector<size_t> out;
  for (size_t slot = first; slot < all_.size(); ++slot) {
    if (any(slot)) out.push_back(slot);
  }
  return out;
}

bool Replacements::pending() const {
  return std::any_of(all_.begin(), all_.end(),
                     [](const Slot& of) { return of.pending.has_value(); });
}

std::optional<int64_t> Replacements::deadline_ms(std::optional<int64_t> other_ms) const {
  std::optional<int64_t> first = other_ms;
  const auto add = [&first](int64_t ms) { first = std::min(first.value_or(ms), ms); };
  for (const Slot& of : all_) {
    if (of.kill_ms) add(*of.kill_ms);
    if (of.pending) add(of.pending->until_ms);
  }
  return first;
}

}  // namespace pushpull
