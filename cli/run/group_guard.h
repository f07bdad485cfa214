// Kills process groups when this process has ended for any reason, even by SIGKILL: workers of
// users' programs start processes of their own, which PR_SET_PDEATHSIG does not reach. A process
// forked for this waits for the end of a pipe. Such processes also become children of this one when
// their own parent has ended (PR_SET_CHILD_SUBREAPER), so that `Child` can wait for their end. One thread, and no other one in the process.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "common/base/unique_fd.h"

namespace pushpull {

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

}  // namespace pushpull
