// Decides when the process in each slot of a job is replaced, and when one that the coordinator has
// given up is killed. Part of the supervisor's state machine, which decides whether the job waits
// for a replacement at all. One thread.
//
// A killed process is replaced at once. A process that ended by SIGINT, SIGTERM or SIGHUP is
// replaced a moment later: a signal to the whole job may reach it before the launcher, and then
// stops the job. A process that ended by itself is replaced once the coordinator reports that it has
// given it up, because the same end may follow from the failure of the whole job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/run/ending.h"

namespace pushpull {

struct ReplacementOptions {
  int64_t most = 3;            // per process
  int64_t together_ms = 1000;  // between the signals to the processes of a whole job
  int64_t report_ms = 10000;   // from the end of a process until the coordinator must report it
  // From the coordinator's report until the process is killed. A process that leaves ends by itself
  // within that time.
  int64_t leave_ms = 1000;
};

class Replacements {
 public:
  // An end that is decided at `until_ms`.
  struct Pending {
    size_t slot = 0;
    Ending ending;
    int64_t until_ms = 0;
    bool replace = false;  // or else the process has failed the job
  };

  Replacements(const ReplacementOptions& options, size_t slots) : options_(options), all_(slots) {}

  // ---- events ----
  // A process runs in the slot.
  void started(size_t slot);
  // The process has ended, and may be replaced. Returns true if it must be replaced now; otherwise
  // its end is pending.
  bool ended(size_t slot, const Ending& ending, int64_t now_ms);
  // The process has ended with code 0. Returns true if it must be replaced now, because the
  // coordinator has given it up; otherwise it is replaced if the coordinator gives it up later.
  bool ended_well(size_t slot);
  // Call for every other end of a process.
  void forget(size_t slot) { all_[slot].kill_ms.reset(); }
  // The coordinator has given the process up. Returns the end of a process that must be replaced
  // now.
  std::optional<Pending> given_up(size_t slot, bool alive, int64_t now_ms);
  // Counts one replacement and returns a text such as "starting a replacement, 1 of at most 3".
  std::string count(size_t slot);

  // ---- results ----
  // Returns the next process to kill, once.
  std::optional<size_t> take_kill(int64_t now_ms);
  // Returns the next pending end whose time has come, once.
  std::optional<Pending> take_due(int64_t now_ms);
  // Returns all pending ends, once. A process that is given up is still killed.
  std::vector<Pending> take_all();

  // ---- queries ----
  bool left(size_t slot) const { return all_[slot].made < options_.most; }
  bool any(size_t slot) const { return all_[slot].made > 0; }
  // Returns the slots from `first` on whose process was replaced.
  std::vector<size_t> replaced_from(size_t first) const;
  int64_t most() const { return options_.most; }
  bool pending() const;
  // Returns when take_kill or take_due has a result, or `other_ms` if that is earlier.
  std::optional<int64_t> deadline_ms(std::optional<int64_t> other_ms) const;

 private:
  struct Slot {
    int64_t made = 0;
    bool given_up = false;  // the latest process, by the coordinator
    bool ended_well = false;
    std::optional<int64_t> kill_ms;
    std::optional<Pending> pending;
  };

  const ReplacementOptions options_;
  std::vector<Slot> all_;
};

}  // namespace pushpull
