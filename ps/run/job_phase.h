// The phase of a job (gathering, training, finishing, then finished or failed) and how it failed.
// Part of the coordinator's state machine. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/error.h"
#include "common/net/message.h"
#include "ps/members/actions.h"

namespace pushpull {

// The member that made the job fail.
struct Culprit {
  std::string host;
  int64_t pid = 0;
  std::string reason;
};

class JobPhase {
 public:
  //   holds_end: members hear that the job is over after `announce_end`.
  explicit JobPhase(Actions& out, bool holds_end = false) : out_(out), holds_end_(holds_end) {}

  // Enters any phase but failed. A failed job stays failed.
  void enter(int64_t now_ms, wire::Phase phase);
  // Fails the job; only the first failure counts.
  //   culprit: empty if no single member caused it.
  void fail(int64_t now_ms, ErrorCode code, const std::string& text,
            const std::optional<Culprit>& culprit);

  // Lets the members hear of the end, and counts the time that they have for it from now on. Later
  // calls have no effect.
  void announce_end(int64_t now_ms);

  wire::Phase phase() const { return phase_; }
  bool gathering() const { return phase_ == wire::PHASE_GATHERING; }
  bool training() const { return phase_ == wire::PHASE_TRAINING; }
  bool failed() const { return phase_ == wire::PHASE_FAILED; }
  // Returns true if nothing is left to compute, whatever the outcome.
  bool ending() const { return phase_ >= wire::PHASE_FINISHING; }
  // Returns true if the members only need to leave.
  bool ended() const { return phase_ >= wire::PHASE_FINISHED; }
  // Returns true once the members may hear that the job is over.
  bool announced() const { return !holds_end_; }
  // Returns true if it is over, and they must not hear of it yet.
  bool held() const { return ended() && holds_end_; }
  // Returns true if this phase has lasted longer than the end waits for members.
  bool overdue(int64_t now_ms) const;

  ErrorCode failure_code() const { return failure_code_; }
  const std::string& failure_text() const { return failure_text_; }
  const std::optional<Culprit>& culprit() const { return culprit_; }
  void add_to(wire::State* state) const;

 private:
  Actions& out_;
  bool holds_end_;
  wire::Phase phase_ = wire::PHASE_GATHERING;
  int64_t since_ms_ = 0;
  ErrorCode failure_code_ = ErrorCode::kFailed;
  std::string failure_text_;
  std::optional<Culprit> culprit_;
};

}  // namespace pushpull
