// The phases of a job, and how it has failed if it has: gathering, training, finishing, then
// finished or failed. Part of the coordinator's state machine; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/error.h"
#include "common/net/message.h"
#include "ps/members/actions.h"

namespace pushpull {

// The member that has ended the job.
struct Culprit {
  std::string host;
  int64_t pid = 0;
  std::string reason;
};

class JobPhase {
 public:
  explicit JobPhase(Actions& out) : out_(out) {}

  // All but failure; a job that has failed stays so.
  void enter(int64_t now_ms, wire::Phase phase);
  // Ends the job; the first failure is the one that counts. culprit: none where no single member
  // has caused it.
  void fail(int64_t now_ms, ErrorCode code, const std::string& text,
            const std::optional<Culprit>& culprit);

  wire::Phase phase() const { return phase_; }
  bool gathering() const { return phase_ == wire::PHASE_GATHERING; }
  bool training() const { return phase_ == wire::PHASE_TRAINING; }
  bool failed() const { return phase_ == wire::PHASE_FAILED; }
  // Nothing is left to compute, whether it went well or not.
  bool ending() const { return phase_ >= wire::PHASE_FINISHING; }
  // The members need only leave.
  bool ended() const { return phase_ >= wire::PHASE_FINISHED; }
  // This phase has lasted longer than members are waited for at the end.
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
