// The processes that have said Hello and wait, for a place in the job or for its end: remembers them
// so that each hears how the job ends. Part of the coordinator's state machine. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/base/error.h"
#include "common/net/message.h"
#include "ps/members/actions.h"

namespace pushpull {

class Newcomers {
 public:
  // Borrows out.
  explicit Newcomers(Actions& out) : out_(out) {}

  // Remembers a process that waits, and returns the time since its first Hello, in milliseconds. If
  // too many wait, the one whose newest Hello is the oldest is forgotten.
  int64_t wait(int64_t now_ms, const PeerId& peer, uint64_t incarnation);
  // Asks the process to repeat its Hello. reason: why it waits, for users.
  void answer(const PeerId& peer, const std::string& reason);
  // Drops a process that has a place now.
  void forget(uint64_t incarnation) { all_.erase(incarnation); }
  // Refuses all processes that wait, with the end of the job. Later calls have no effect.
  void end(const Error& end);

  // Returns the end of the job, once the members may hear of it.
  const std::optional<Error>& ended() const { return end_; }

 private:
  struct Newcomer {
    int64_t since_ms = 0;
    int64_t heard_ms = 0;  // its newest Hello
    PeerId peer;
  };

  Actions& out_;
  std::map<uint64_t, Newcomer> all_;  // by incarnation
  std::optional<Error> end_;
};

}  // namespace pushpull
