// Checkpoints that the coordinator adds while training goes on (checkpoint-every = auto): when all
// whom it concerns know of the newest one. Part of the coordinator's state machine; one thread.
//
// A checkpoint is a cut between the same two steps everywhere, so nobody may pass it without knowing
// of it. It is named before anybody can have begun the step behind it; servers hold back weights for
// that step, and no lease of it is drawn, until all have told that they know.
#pragma once

#include <cstdint>

#include "ps/members/actions.h"
#include "ps/members/membership.h"

namespace pushpull {

class ChosenCheckpoints {
 public:
  // members, out: borrowed. workers: they have to know, too: of leases, and where they keep the weights.
  // Elsewhere servers alone hold a worker back.
  ChosenCheckpoints(const Membership& members, bool workers, Actions& out)
      : members_(members), workers_(workers), out_(out) {}

  // A step that nobody can have begun.
  void choose(int64_t step);
  // True: everybody knows of the newest one now.
  bool on_tick();
  // Not everybody knows of it yet.
  bool held() const { return held_; }
  int64_t newest() const { return newest_; }  // -1: none

 private:
  bool everybody_knows() const;

  const Membership& members_;
  const bool workers_;
  Actions& out_;
  int64_t newest_ = -1;
  int64_t said_in_version_ = -1;  // of the state, for the first time
  bool held_ = false;
};

}  // namespace pushpull
