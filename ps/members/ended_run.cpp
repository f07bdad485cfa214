#include "ps/members/ended_run.h"

#include <algorithm>
#include <limits>

#include "common/base/error.h"

namespace pushpull {

namespace {

constexpr int64_t kWaitMs = 5000;  // members send a heartbeat each second or more often

}  // namespace

Error end_without_place(bool finished, int code, const std::string& text) {
  const std::string over = "[join] the job is over";
  if (finished) return {ErrorCode::kUnreachable, over};
  return {static_cast<ErrorCode>(code), over + ": " + text};
}

std::optional<Message> EndedRun::on_message(const Message& message) {
  const wire::Header& header = message.header;
  Message answer;
  if (header.term_id() == end_.term_id && header.has_leave()) {
    ++left_;
    return std::nullopt;
  }
  if (header.term_id() == end_.term_id && header.has_heartbeat()) {
    wire::State* state = answer.header.mutable_state();
    state->set_version(std::numeric_limits<int64_t>::max());  // later than all of the run
    state->set_phase(end_.finished ? wire::PHASE_FINISHED : wire::PHASE_FAILED);
    if (!end_.finished) {
      state->set_code(end_.code);
      state->set_text(end_.text);
    }
    answer.header.set_term_id(end_.term_id);
    return answer;
  }
  if (!header.has_hello()) return std::nullopt;
  wire::Refused* refused = answer.header.mutable_refused();
  const Error end = end_without_place(end_.finished, end_.code, end_.text);
  refused->set_code(static_cast<int>(end.code()));
  refused->set_text(end.what());
  return answer;
}

bool EndedRun::over(int64_t now_ms) {
  if (!began_ms_) began_ms_ = now_ms;
  return left_ >= end_.members || now_ms - *began_ms_ > kWaitMs;
}

}  // namespace pushpull
