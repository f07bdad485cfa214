#include "ps/run/stop_request.h"

#include <algorithm>

#include "common/base/process.h"
#include "common/base/text.h"

namespace pushpull {

std::string RunSaved::loss() const {
  if (!whole_step) {
    return "there is no checkpoint of this run on disk" +
           (step ? ": all its " + plural(*step, "step") + " are lost" : std::string());
  }
  const std::string newest = "the newest checkpoint is that of step " + std::to_string(*whole_step);
  if (!step) return newest + ": what was trained since then is lost";
  const int64_t lost = std::max<int64_t>(0, *step - *whole_step);
  if (lost == 0) return newest + ": no step is lost";
  return newest + ": " + plural(lost, "step") + " since then " + (lost == 1 ? "is" : "are") +
         " lost";
}

void StopRequest::take_itself(Now now, const char* why, int64_t grace_ms) {
  if (end_.asked()) return;
  by_itself_ = why;
  grace_ms_ = grace_ms;
  end_.take(now.ms, SIGTERM);
}

std::string StopRequest::cause() const {
  if (by_itself_ != nullptr) return by_itself_;
  return signal_name(end_.signal()) + " (server 0 (" + self_.host + ", pid " +
         std::to_string(self_.pid) + "))";
}

std::optional<Error> StopRequest::failure(Now now, wire::Phase phase, bool trained,
                                          const FileWatch& files, const RunSaved& saved) {
  const bool untouched = phase == wire::PHASE_GATHERING && !trained;
  if (!untouched && !late(now)) return std::nullopt;
  // Nothing is left to compute: only a file system that hangs may end the job.
  if (phase > wire::PHASE_FINISHING || (phase == wire::PHASE_FINISHING && !files.busy())) {
    return std::nullopt;
  }
  const int by_signal =
      by_itself_ != nullptr ? static_cast<int>(ErrorCode::kFailed) : 128 + end_.signal();
  const ErrorCode code = saved.whole_step ? ErrorCode::kStopped : ErrorCode::kFailed;
  exit_code_ = saved.whole_step ? static_cast<int>(code) : by_signal;
  std::string text = "[job] ended by " + cause();
  if (files.busy()) text += "; " + files.text(now.awake_ms);
  if (untouched) return Error(code, text);
  if (!files.busy() && grace_ms_ == 0) {
    text += "; without workers the servers reach no consistent cut";
  } else if (!files.busy()) {
    text += "; the next consistent cut was not on disk within the grace of " +
            print_real(static_cast<double>(grace_ms_) / 1000.0) + " s";
  }
  text += "; " + saved.loss();
  return Error(code,
               saved.whole_step ? text + "; the same command with --resume auto goes on" : text);
}

}  // namespace pushpull
