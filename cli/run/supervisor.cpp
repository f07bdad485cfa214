#include "cli/run/supervisor.h"

#include <algorithm>
#include <csignal>

#include "common/base/error.h"
#include "common/base/process.h"

namespace pushpull {
namespace {

// Returns true if the process failed only because it lost another one, which is the cause.
bool is_consequence(const Ending& ending) {
  return ending.signal == 0 && (ending.code == static_cast<int>(ErrorCode::kUnreachable) ||
                                ending.code == static_cast<int>(ErrorCode::kPeerLost));
}

// Returns true if a replacement would fail in the same way.
bool is_for_good(const Ending& ending) {
  if (ending.signal != 0) {
    return false;
  }
  switch (static_cast<ErrorCode>(ending.code)) {
    case ErrorCode::kUsage:
    case ErrorCode::kData:
    case ErrorCode::kProtocol:
    case ErrorCode::kNotFinite:
    case ErrorCode::kRefused:
      return true;
    default:
      return false;
  }
}

}  // namespace

Supervisor::Supervisor(const SupervisorOptions& options)
    : options_(options), members_(static_cast<size_t>(options.servers + options.workers)) {
  PP_ASSERT(options.servers > 0 && options.workers > 0);
}

bool Supervisor::is_worker(size_t slot) const {
  return slot >= static_cast<size_t>(options_.servers);
}

std::string Supervisor::name(size_t slot) const {
  return is_worker(slot) ? "worker " + std::to_string(slot - static_cast<size_t>(options_.servers))
                         : "server " + std::to_string(slot);
}

std::string Supervisor::who(size_t slot) const {
  return "[run] " + name(slot) + " (pid " + std::to_string(members_[slot].pid) + ") ";
}

void Supervisor::started(size_t slot, int64_t pid) {
  members_[slot].pid = pid;
  members_[slot].alive = true;
}

bool Supervisor::all_ended() const {
  return std::none_of(members_.begin(), members_.end(), [](const Member& m) { return m.alive; });
}

// A replacement could not open the device either.
bool Supervisor::may_be_lost_before_start(const Ending& ending) const {
  return options_.on_worker_loss == OnWorkerLoss::kWait &&
         (ending.signal != 0 || ending.code != static_cast<int>(ErrorCode::kDevice));
}

bool Supervisor::may_be_lost(size_t slot, const Ending& ending) const {
  const bool in_quarantine = options_.quarantine && training_began_ && ending.signal == 0 &&
                             ending.code == static_cast<int>(ErrorCode::kNotFinite);
  // Once the job is done, no worker can fail it.
  if (!is_worker(slot) || (is_for_good(ending) && !in_quarantine && phase_ != Phase::kFinishing)) {
    return false;
  }
  if (!training_began_) {
    return may_be_lost_before_start(ending);
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

// Only a killed server is restarted: a server that gives up by itself would do so again.
bool Supervisor::comes_back(size_t slot, const Ending& ending) const {
  return !is_worker(slot) && options_.on_server_loss == OnServerLoss::kRestart && listens_ &&
         (phase_ == Phase::kRunning || phase_ == Phase::kTold) && ending.signal != 0 &&
         members_[slot].replacements < options_.replacements;
}

bool Supervisor::running() const {
  return phase_ == Phase::kRunning || phase_ == Phase::kTold || phase_ == Phase::kFinishing;
}

SupervisorActions Supervisor::ended(size_t slot, const Ending& ending, int64_t now_ms) {
  members_[slot].alive = false;
  const bool well = ending.success() || ending.stopped();
  members_[slot].succeeded = well;
  stopped_ = stopped_ || ending.stopped();
  SupervisorActions actions;
  if (!well) {
    if (running() && may_be_lost(slot, ending)) {
      actions = lost_worker(slot, ending);
    } else if (comes_back(slot, ending)) {
      actions = lost_server(slot, ending);
    } else if (slot != 0 && !is_worker(slot) && members_[slot].replacements > 0 &&
               is_consequence(ending)) {
      // The replacement came too late. The coordinator decides whether that matters.
      actions.say.push_back(who(slot) + ending.describe());
    } else {
      members_[slot].failure = ending;
      members_[slot].failure_order = ++failures_;
      if (running()) {
        phase_ = Phase::kSettling;
        began_ms_ = now_ms;
        actions.hold = true;
      }
    }
  } else if (slot == 0 && (phase_ == Phase::kRunning || phase_ == Phase::kTold)) {
    phase_ = Phase::kFinishing;
    began_ms_ = now_ms;
  }
  if (phase_ == Phase::kSettling && all_ended()) settle(actions);
  // A signal that arrives after the job is done changes nothing.
  if (all_ended() && failures_ == 0 && phase_ != Phase::kKilled) {
    exit_code_ = stopped_ ? static_cast<int>(ErrorCode::kStopped) : 0;
  }
  return actions;
}

SupervisorActions Supervisor::lost_worker(size_t slot, const Ending& ending) {
  SupervisorActions actions;
  Member& member = members_[slot];
  const std::string lost = who(slot) + ending.describe();
  if (phase_ == Phase::kFinishing) {
    actions.say.push_back(lost + " after the job was done");
  } else if (options_.on_worker_loss == OnWorkerLoss::kContinue) {
    actions.say.push_back(lost + "; the job goes on without it");
  } else if (member.replacements < options_.replacements) {
    replace(slot, lost, actions);
  } else {
    actions.say.push_back(lost + "; it was replaced " + std::to_string(options_.replacements) +
                          " times, the job waits for a worker from elsewhere");
  }
  return actions;
}

SupervisorActions Supervisor::lost_server(size_t slot, const Ending& ending) {
  SupervisorActions actions;
  replace(slot, who(slot) + ending.describe(), actions);
  return actions;
}

void Supervisor::replace(size_t slot, const std::string& lost, SupervisorActions& actions) {
  Member& member = members_[slot];
  ++member.replacements;
  actions.restart = slot;
  actions.say.push_back(lost + "; starting a replacement, " + std::to_string(member.replacements) +
                        " of at most " + std::to_string(options_.replacements));
}

void Supervisor::blamed(int64_t pid, int code, const std::string& reason) {
  for (size_t slot = 0; slot < slots(); ++slot) {
    if (members_[slot].pid == pid) blame_ = {slot, code, reason};
  }
}

// Returns the process that the coordinator named. Without it, the first process that failed by
// itself, or else the first that failed.
size_t Supervisor::cause() const {
  if (blame_) {
    return blame_->slot;
  }
  size_t found = slots();
  for (size_t slot = 0; slot < slots(); ++slot) {
    if (!members_[slot].failure) {
      continue;
    }
    if (found == slots()) {
      found = slot;
      continue;
    }
    const bool mine = is_consequence(*members_[slot].failure);
    const bool best = is_consequence(*members_[found].failure);
    if (mine != best ? best : members_[slot].failure_order < members_[found].failure_order) {
      found = slot;
    }
  }
  return found;
}

void Supervisor::settle(SupervisorActions& actions) {
  const size_t slot = cause();
  const std::optional<Ending>& failure = members_[slot].failure;
  // The blamed process may still be ending, since the coordinator waits for the others. After a
  // signal, no process is blamed for the signal's effects.
  if (!request_.asked() || blame_) {
    exit_code_ = failure ? failure->exit_code() : blame_->code;
  } else if (stopped_) {
    exit_code_ = static_cast<int>(ErrorCode::kStopped);
  }
  actions.release = slot;
  const std::string how = failure ? failure->describe() : "failed with " + code_text(blame_->code);
  const bool killed = failure && failure->signal != 0;
  actions.say.push_back(who(slot) + how + (blame_ && !killed ? ": " + blame_->reason : "") +
                        (all_ended() ? "" : "; stopping the others"));
  stop(actions, SIGTERM);
}

void Supervisor::stop(SupervisorActions& actions, int signal) {
  actions.signal_all = signal;
  phase_ = signal == SIGKILL ? Phase::kKilled : Phase::kStopping;
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
    } else if (phase_ == Phase::kTold) {
      exit_code_ = 128 + signal;
    }
    actions.say.push_back("[run] SIGINT again: killing what still runs");
    stop(actions, SIGKILL);
    return actions;
  }
  if (!first) {
    return actions;
  }
  exit_code_ = 128 + signal;
  began_ms_ = now_ms;
  actions.release = slots();
  actions.say.push_back("[run] " + signal_name(signal) + ": stopping the job" +
                        (signal == SIGINT ? "; once more kills it" : ""));
  if (phase_ == Phase::kFinishing || !members_.front().alive) {
    stop(actions, signal);
  } else {
    actions.signal_coordinator = signal;
    phase_ = Phase::kTold;
  }
  return actions;
}

SupervisorActions Supervisor::listens_again() const {
  SupervisorActions actions;
  if (phase_ == Phase::kTold) actions.signal_coordinator = request_.signal();
  return actions;
}

SupervisorActions Supervisor::give_up(const std::string& text, int code, int64_t now_ms) {
  SupervisorActions actions;
  if (phase_ != Phase::kRunning) {
    return actions;
  }
  ++failures_;
  exit_code_ = code;
  began_ms_ = now_ms;
  actions.release = slots();
  actions.say.push_back("[run] " + text);
  stop(actions, SIGTERM);
  return actions;
}

SupervisorActions Supervisor::tick(int64_t now_ms) {
  SupervisorActions actions;
  if (phase_ == Phase::kSettling && now_ms >= began_ms_ + options_.settle_ms) {
    settle(actions);
    return actions;
  }
  if (phase_ == Phase::kTold && now_ms >= began_ms_ + options_.stop_ms) {
    actions.say.push_back("[run] the coordinator did not stop the job within " +
                          std::to_string(options_.stop_ms / 1000) + " s; ending all processes");
    began_ms_ = now_ms;
    stop(actions, SIGTERM);
    return actions;
  }
  if ((phase_ != Phase::kStopping && phase_ != Phase::kFinishing) ||
      now_ms < began_ms_ + options_.grace_ms) {
    return actions;
  }
  for (size_t slot = 0; slot < slots(); ++slot) {
    if (!members_[slot].alive) {
      continue;
    }
    actions.say.push_back(who(slot) + "did not end within " +
                          std::to_string(options_.grace_ms / 1000) + " s; killed");
    // With on-worker-loss = abort, the job succeeds only if every process does.
    if (phase_ == Phase::kFinishing && !may_be_lost(slot, {.code = 0, .signal = SIGKILL})) {
      exit_code_ = 128 + SIGKILL;
    }
  }
  stop(actions, SIGKILL);
  return actions;
}

std::optional<int64_t> Supervisor::deadline_ms() const {
  if (phase_ == Phase::kSettling) {
    return began_ms_ + options_.settle_ms;
  }
  if (phase_ == Phase::kTold) {
    return began_ms_ + options_.stop_ms;
  }
  if (phase_ == Phase::kStopping || phase_ == Phase::kFinishing) {
    return began_ms_ + options_.grace_ms;
  }
  return std::nullopt;
}

}  // namespace pushpull
