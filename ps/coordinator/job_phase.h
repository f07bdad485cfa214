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
  explicit JobPhase(Actions& out) : out_(out) {}

  // Enters any phase but failed. A failed job stays failed.
  void enter(int64_t now_ms, wire::Phase phase);
  // Fails the job; only the first failure counts.
  //   culprit: empty if no single member caused it.
  void fail(int64_t now_ms, ErrorCode code, const std::string& text,
            const std::optional<Culprit>& culprit);

  // Counts the time of this phase from now on.
  void restart(int64_t now_ms) { since_ms_ = now_ms; }

  wire::Phase phase() const { return phase_; }
  bool gathering() const { return phase_ == wire::PHASE_GATHERING; }
  bool training() const { return phase_ == wire::PHASE_TRAINING; }
  bool failed() const { return phase_ == wire::PHASE_FAILED; }
  // Returns true if nothing is left to compute, whatever the outcome.
  bool ending() const { return phase_ >= wire::PHASE_FINISHING; }
  // Returns true if the members only need to leave.
  bool ended() const { return phase_ >= wire::PHASE_FINISHED; }
  // Returns true if this phase has lasted longer than the end waits for members.
  bool overdue(int64_t now_ms) const;

  ErrorCode failure_code() const { return failure_code_; }
  const std::string& failure_text() const { return failure_text_; }
  const std::optional<Culprit>& culprit() const { return culprit_; }
  void add_to(wire::State* state) const;

 private:
  Actions& out_;
  wire::Phase phase_ = wire::PHASE_GATHERING;
  int64_t since_ms_ = 0;
  ErrorCode failure_code_ = ErrorCode::kFailed;
  std::string failure_text_;
  std::optional<Culprit> culprit_;
};

}  // namespace pushpull
