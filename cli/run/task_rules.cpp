#include "cli/run/task_rules.h"

namespace pushpull {
namespace {

const char* name_of(size_t member) { return member == 0 ? "the worker " : "the server "; }

}  // namespace

bool TaskRules::waits_for_another(size_t member) const {
  return member == 0 ? options_.on_worker_loss == OnWorkerLoss::kWait
                     : options_.on_server_loss == OnServerLoss::kRestart;
}

// The coordinator sees every loss, and fails the job if it must.
bool TaskRules::goes_on_without(size_t member, const Ending& ending) const {
  if (ending.is_for_good()) return false;
  return member == 0 ? options_.on_worker_loss != OnWorkerLoss::kAbort
                     : options_.on_server_loss == OnServerLoss::kRestart;
}

TaskRules::Verdict TaskRules::ended(size_t member, const Ending& ending) {
  if (ending.success() || ending.stopped()) return {};
  const std::string text = name_of(member) + ending.describe();
  const bool may_return = waits_for_another(member) && !told_ && ending.signal != 0;
  if (may_return && made_[member] < options_.most) {
    const std::string count = std::to_string(++made_[member]);
    return {true, text + "; starting a replacement, " + count + " of at most " +
                      std::to_string(options_.most)};
  }
  if (goes_on_without(member, ending))
    return {false, text + "; the coordinator decides about the job"};
  if (code_ == 0) code_ = ending.exit_code();
  return {false, text};
}

}  // namespace pushpull
