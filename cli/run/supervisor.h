// The supervisor of a job's processes: reacts to their ends, and replaces them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/run/ending.h"
#include "common/base/end_request.h"
#include "common/job/job.h"

namespace pushpull {

// Decides when the process in each slot of a job is replaced, and when one that the coordinator has
// given up is killed. Part of the supervisor's state machine, which decides whether the job waits
// for a replacement at all. One thread.
//
// A killed process is replaced at once. A process that ended by SIGINT, SIGTERM or SIGHUP is
// replaced a moment later: a signal to the whole job may reach it before the launcher, and then
// stops the job. A worker that failed by itself is replaced at once, too. A server that ended by itself
// is replaced once the coordinator reports that it has given it up, because the same end may follow
// from the failure of the whole job.
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

// The failures of a job's processes, and which of them is the cause of the others. Part of the
// supervisor's state machine. One thread.
class Failures {
 public:
  struct Blame {
    size_t slot = 0;
    int code = 0;
    std::string reason;
  };

  void add(size_t slot, const Ending& ending) { by_slot_[slot] = {ending, ++order_}; }
  // The coordinator reports that this process failed the job.
  void blame(Blame blame) { blame_ = std::move(blame); }

  bool any() const { return !by_slot_.empty(); }
  const std::optional<Blame>& blamed() const { return blame_; }
  // Returns how the process in this slot failed, or nothing if it has not.
  std::optional<Ending> of(size_t slot) const;
  // Returns the slot of the process that the coordinator has blamed; else that of the first process
  // that failed by itself, or of the first that failed. Needs one of these.
  size_t cause() const;

 private:
  struct Failure {
    Ending ending;
    int64_t order = 0;  // of the calls of `add`
  };
  std::map<size_t, Failure> by_slot_;
  int64_t order_ = 0;
  std::optional<Blame> blame_;
};

// The numbers of processes, policies and deadlines of the supervisor. Plain data; any thread.
struct SupervisorOptions {
  int64_t servers = 1;  // slot 0 is the coordinator
  int64_t workers = 1;  // 0: others start them
  // One process starts all workers and further servers, on any hosts: its name, "srun". It has the
  // place of the only worker (servers = workers = 1), and is never replaced. "": there is none.
  std::string step = {};
  OnWorkerLoss on_worker_loss = OnWorkerLoss::kAbort;
  OnServerLoss on_server_loss = OnServerLoss::kAbort;
  // A worker with a bad gradient is lost. The coordinator ends the job if another finds the same.
  bool quarantine = false;
  int64_t settle_ms = 1000;   // from the first failure until the others are told to end; they may
                              // report the cause and end by themselves
  int64_t stop_ms = 30000;    // from a signal to the coordinator until all processes get it
  int64_t grace_ms = 10000;   // from the first failure or signal until the rest is killed
  int64_t finish_ms = 10000;  // from the coordinator's success until the rest is killed
  ReplacementOptions replacement = {};  // of a lost process, if the job waits for another
};

struct SupervisorActions {
  std::vector<std::string> say;
  bool hold = false;              // a process failed; its cause will follow
  std::optional<size_t> release;  // slot of the cause, now known; slots() if there is none
  int signal_all = 0;             // signal for every living process, 0 = none
  int signal_coordinator = 0;     // signal for the coordinator alone, 0 = none
  std::optional<size_t> kill;     // slot to kill; its end follows
  std::optional<size_t> restart;  // slot to restart
  std::vector<size_t> end;        // slots to end by SIGTERM
};

// Decides how `pushpull run` treats its processes: which may end, what a death means, when the
// others are signalled or killed, and the exit code. A state machine: takes events and the time,
// returns actions. Handles no process itself. One thread.
class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options);

  // Slots: servers, then workers. name() returns "server 0" or "worker 2".
  size_t slots() const { return members_.size(); }
  bool is_worker(size_t slot) const;
  std::string name(size_t slot) const;

  void started(size_t slot, int64_t pid);
  // The coordinator listens: the address is known, and the coordinator can be restarted.
  void listens() { listens_ = true; }
  // The job is known: takes its policies for losses. Call before training_began.
  void take_policies(const SupervisorOptions& of) {
    options_.on_worker_loss = of.on_worker_loss;
    options_.on_server_loss = of.on_server_loss;
    options_.quarantine = of.quarantine;
  }
  // A restarted coordinator listens. Repeats an earlier stop signal to it.
  SupervisorActions listens_again() const;
  SupervisorActions ended(size_t slot, const Ending& ending, int64_t now_ms);
  // The coordinator reports that this process failed the job, with the job's exit code and the
  // reason. All processes end with that code, so nothing else identifies the cause. Returns true if
  // the line about the cause will say the reason.
  bool blamed(int64_t pid, int code, const std::string& reason);
  // The coordinator reports that it has given up this process while the job goes on: it was silent
  // or stuck, or has left. If the job waits for another, the launcher replaces the process, and
  // kills it first if it has not ended.
  SupervisorActions given_up(int64_t pid, int64_t now_ms);
  // The coordinator reports that all members have joined. Until then it waits for the missing
  // processes by name, and no other process could take their place.
  void training_began() { training_began_ = true; }
  // A further job of the same workers runs: they may take their time at the end of this one.
  void another_runs(int64_t now_ms) {
    if (phase_ == Phase::kFinishing) began_ms_ = now_ms;
  }
  // The launcher received SIGINT, SIGTERM or SIGHUP.
  SupervisorActions signalled(int signal, int64_t now_ms);
  // The launcher cannot start a process, or the coordinator's address does not arrive.
  SupervisorActions give_up(const std::string& text, int code, int64_t now_ms);
  SupervisorActions tick(int64_t now_ms);

  // Returns when `tick` must be called, or empty if never.
  std::optional<int64_t> deadline_ms() const;
  // Returns true if no further process may be started.
  bool stopping() const { return phase_ != Phase::kRunning; }
  bool all_ended() const;
  // Returns 0 only if the job finished. Valid once all processes have ended.
  int exit_code() const { return exit_code_; }

 private:
  enum class Phase {
    kRunning,
    kStopRequested,  // a signal arrived: the coordinator stops the job
    kFinishing,      // the coordinator succeeded; the others should end
    kSettling,       // a process failed; waiting for the cause
    kStopping,       // the others were signalled to end
    kKilled,
  };
  struct Member {
    int64_t pid = 0;  // of the latest process in this slot
    bool alive = false;
    bool succeeded = false;
  };

  void lost_worker(size_t slot, const Ending& ending, int64_t now_ms, SupervisorActions& actions);
  void failed(size_t slot, const Ending& ending, int64_t now_ms, SupervisorActions& actions);
  void fail_pending(int64_t now_ms, SupervisorActions& actions);
  void not_replaced(const Replacements::Pending& pending, int64_t now_ms,
                    SupervisorActions& actions);
  void replace(size_t slot, const Ending& ending, SupervisorActions& actions);
  bool may_replace(size_t slot) const;
  bool will_restart(size_t slot, const Ending& ending) const;
  bool may_be_lost(size_t slot, const Ending& ending) const;
  bool is_active() const { return phase_ == Phase::kRunning || phase_ == Phase::kStopRequested; }
  bool running() const { return is_active() || phase_ == Phase::kFinishing; }
  bool decide_one(int64_t now_ms, SupervisorActions& actions);
  bool is_step() const { return !options_.step.empty(); }
  void settle(SupervisorActions& actions);
  void stop(SupervisorActions& actions, int signal);
  std::string who(size_t slot) const;

  SupervisorOptions options_;
  std::vector<Member> members_;
  Replacements replacements_;
  Phase phase_ = Phase::kRunning;
  int64_t began_ms_ = 0;  // start of the end: first failure, signal, or the coordinator's success
  bool gave_up_ = false;  // the launcher itself failed the job
  Failures failures_;
  bool training_began_ = false;
  EndRequest request_;
  bool stopped_ = false;  // the job stopped with a checkpoint
  bool listens_ = false;
  int exit_code_ = 0;
};

}  // namespace pushpull
