// Checkpoints that the coordinator adds during training (checkpoint-every = auto): tracks when all
// members concerned know of the newest one. Part of the coordinator's state machine. Not
// thread-safe.
//
// A checkpoint is a cut between the same two steps on all members, so no member may pass it without
// knowing of it. It is announced before any worker can have begun the step after it; until all
// members confirm it, servers hold back the weights for that step and no lease of it is drawn.
#pragma once

#include <cstdint>

#include "ps/members/actions.h"
#include "ps/members/membership.h"

namespace pushpull {

class ChosenCheckpoints {
 public:
  // Borrows members and out.
  //   workers: workers must know, too: with leases, and if they keep the weights. Otherwise it is
  //   enough that servers hold workers back.
  ChosenCheckpoints(const Membership& members, bool workers, Actions& out)
      : members_(members), workers_(workers), out_(out) {}

  // Adds a checkpoint at a step that no worker can have begun.
  void choose(int64_t step);
  // Returns true once all members know of the newest checkpoint.
  bool on_tick();
  // Returns true while some member does not know of it yet.
  bool held() const { return held_; }
  int64_t newest() const { return newest_; }  // -1 if there is none

 private:
  bool all_confirmed() const;

  const Membership& members_;
  const bool workers_;
  Actions& out_;
  int64_t newest_ = -1;
  int64_t announced_version_ = -1;  // first State with the newest one
  bool held_ = false;
};

}  // namespace pushpull
