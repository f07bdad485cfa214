#include "ps/coordinator/stop_request.h"

#include "common/base/process.h"

namespace pushpull {

std::string StopRequest::cause() const {
  return signal_name(end_.signal()) + " (server 0 (" + self_.host + ", pid " +
         std::to_string(self_.pid) + "))";
}

std::optional<std::string> StopRequest::failure(Now now, wire::Phase phase, bool trained,
                                                const FileWatch& files) {
  const bool untouched = phase == wire::PHASE_GATHERING && !trained;
  if (!untouched && !late(now)) return std::nullopt;
  // Nothing is left to compute: only a file system that hangs may end the job.
  if (phase > wire::PHASE_FINISHING || (phase == wire::PHASE_FINISHING && !files.busy())) {
    return std::nullopt;
  }
  failed_ = true;
  std::string text = "[job] ended by " + cause();
  if (files.busy()) return text + "; " + files.text(now.awake_ms);
  if (untouched) return text;
  return text + "; the next consistent cut was not on disk within the grace of " +
         std::to_string(EndRequest::kStopMs / 1000) + " s: resume from the last checkpoint";
}

std::optional<int> StopRequest::exit_code() const {
  return failed_ ? std::optional(128 + end_.signal()) : std::nullopt;
}

}  // namespace pushpull
