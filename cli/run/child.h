// A process started by the launcher, with pipes for its output. The kernel sends it SIGTERM when
// the launcher dies for any reason (prctl(2), PR_SET_PDEATHSIG), unless its plan forbids it. It leads its own process group, so
// that the terminal's Ctrl-C reaches only the launcher, which forwards it once. Use only on the
// thread that started it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/run/ending.h"
#include "common/base/unique_fd.h"

namespace pushpull {

struct LauncherOptions;
class StepLauncher;

// How each process of a job is started: its command line and its environment. Any thread.
struct StartPlan {
  std::vector<std::string> words;  // the first one is found as execvp(3) does
  // Variables that the process gets beside the launcher's own, or instead. Without a value: removed.
  std::vector<std::pair<std::string, std::optional<std::string>>> environment = {};
  // CPUs that the process and its children are bound to; empty: those of the launcher.
  std::vector<int> cpus = {};
  // Gets SIGTERM when the launcher dies. Not a user's program, which SIGTERM would kill: it ends with
  // the job, which the servers stop.
  bool ends_with_launcher = true;
};

// How `pushpull run --over` starts all processes but the coordinator: by one command, in the place of
// the only worker. Its tasks are `pushpull task` (cli/task).
struct Step {
  std::shared_ptr<const StepLauncher> launcher;
  std::vector<std::string> words;             // up to the address of the coordinator
  std::vector<std::string> words_after = {};  // a user's worker
  std::string key = {};                       // for PUSHPULL_KEY; "": --insecure
};

// Returns the plan of the process in `slot`: servers, then workers.
//   address: of the coordinator, which is slot 0 and has none yet.
StartPlan plan_start(const LauncherOptions& options, size_t slot, const std::string& address);

// Kills process groups when this process has ended for any reason, even by SIGKILL: workers of
// users' programs start processes of their own, which PR_SET_PDEATHSIG does not reach. A process
// forked for this waits for the end of a pipe. Such processes also become children of this one when
// their own parent has ended (PR_SET_CHILD_SUBREAPER), so that `Child` can wait for their end. One thread, and no other one in the process.
class GroupGuard {
 public:
  //   leave_ms: after the end of this process, for the leaders of groups to end by themselves.
  // Throws Error(kFailed) if no process can be started.
  explicit GroupGuard(int64_t leave_ms);
  // Kills the groups that are still watched.
  ~GroupGuard();
  GroupGuard(const GroupGuard&) = delete;
  GroupGuard& operator=(const GroupGuard&) = delete;

  // When this process has ended: kills the group once its leader has ended, too, or after leave_ms.
  void watch(pid_t group) { tell(group); }
  // Call before another process can get the leader's number.
  void forget(pid_t group) { tell(-group); }

 private:
  void tell(pid_t message) const;

  UniqueFd pipe_;
  pid_t pid_ = -1;
};

class Child {
 public:
  // The child's file descriptor of the announcement pipe.
  static constexpr int kAnnounceFd = 3;

  // Starts a program, with empty standard input and default signal handlers.
  //   announce: opens kAnnounceFd in the child, for writing.
  // Throws Error(kFailed) with program and reason.
  Child(const StartPlan& plan, bool announce);
  // Kills the process group if the process still runs, and waits for the process.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // Sends a signal to the process group.
  void send(int signal) const;
  // Returns how the process ended, once; empty while it runs or after that. Kills its group then:
  // processes that it has started and left behind.
  std::optional<Ending> poll_end();

  // Non-blocking reading ends. Reset them at end of file.
  UniqueFd out;
  UniqueFd err;
  UniqueFd announcement;

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
};

// Replaces `bytes` with the available bytes, at most 64 KiB. Returns false at the end of the
// stream.
bool read_available(int fd, std::string& bytes);

}  // namespace pushpull
