#include "ps/run/job_phase.h"

#include <utility>

#include "common/base/text.h"

namespace pushpull {

namespace {

constexpr int64_t kEndDeadlineMs = 5000;
// The text contains a member's message, and every State carries it.
constexpr size_t kMaxTextBytes = 4096;

}  // namespace

void JobPhase::enter(int64_t now_ms, wire::Phase phase) {
  if (failed()) return;
  phase_ = phase;
  since_ms_ = now_ms;
  out_.state_changed();
}

void JobPhase::fail(int64_t now_ms, ErrorCode code, const std::string& text,
                    const std::optional<Culprit>& culprit) {
  if (failed()) return;
  failure_code_ = code;
  failure_text_ = printable(text, kMaxTextBytes);
  culprit_ = culprit;
  enter(now_ms, wire::PHASE_FAILED);
}

void JobPhase::announce_end(int64_t now_ms) {
  if (std::exchange(holds_end_, false)) since_ms_ = now_ms;
}

bool JobPhase::overdue(int64_t now_ms) const { return now_ms - since_ms_ > kEndDeadlineMs; }

void JobPhase::add_to(wire::State* state) const {
  state->set_phase(phase_);
  if (!failed()) return;
  state->set_code(static_cast<int>(failure_code_));
  state->set_text(failure_text_);
}

}  // namespace pushpull
