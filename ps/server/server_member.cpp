#include "ps/server/server_member.h"

#include "common/base/process.h"
#include "ps/server/data_plane.h"

namespace pushpull {

namespace {

JoinOptions as_server(JoinOptions options) {
  options.role = wire::ROLE_SERVER;
  return options;
}

}  // namespace

ServerMember::ServerMember(JoinOptions options, ServerHost& host)
    : host_(host), member_(as_server(std::move(options))) {}

void ServerMember::guarded(const std::function<void()>& event) {
  if (end_) return;
  try {
    event();
  } catch (const Error& e) {
    fail(e.code(), e.what());
  }
}

void ServerMember::on_message(int64_t now_ms, const Message& message) {
  guarded([&] { take_news(member_.on_message(now_ms, message), message); });
}

void ServerMember::take_news(Member::News news, const Message& message) {
  switch (news) {
    case Member::News::kNone:
      return;
    case Member::News::kJoined:
      if (!listening_) return take_job();
      member_.say("joined, listening on " + endpoint_);
      return take_state();
    case Member::News::kState:
      return take_state();
    case Member::News::kTerm:
      return take_term();
    case Member::News::kOther:
      return host_.data().on_answer(message.header);
  }
}

// The first Hello asks for the job only: the socket's limits depend on its slice size.
void ServerMember::take_job() {
  endpoint_ = host_.listen(member_.job(), member_.term_id(), member_.run_id());
  listening_ = true;
  member_.join_as_server(endpoint_);
}

// Joins the new term, in which weights are loaded again.
void ServerMember::take_term() {
  if (!listening_) return;  // it has not received the job yet
  host_.data().end_term(member_.earlier_term_id());
  host_.rename(member_.job(), member_.term_id());
  norms_ = decltype(norms_){kStepRequestMs};
  arrived_ = decltype(arrived_){kStepRequestMs};
  member_.join_as_server(endpoint_);
}

void ServerMember::take_state() {
  const wire::State& state = member_.state();
  if (state.phase() == wire::PHASE_FAILED) {
    return leave(0, "", {false, static_cast<ErrorCode>(state.code()), state.text(), 0});
  }
  if (state.phase() == wire::PHASE_FINISHED) {
    return leave(0, "", {true, ErrorCode::kFailed, "", 0});
  }
  host_.data().on_state(member_.view(), nullptr);
}

void ServerMember::on_tick(int64_t now_ms) {
  if (end_) return;
  const bool released = end_request_.asked() && member_.state().let_go();
  const bool alone = end_request_.abandoned(now_ms, member_.silent_ms(now_ms));
  if (released || alone) return leave_by_signal();
  guarded([&] {
    if (member_.joined() && server() != nullptr) report_waiting(now_ms);
    member_.on_tick(now_ms, [this] { return host_.data().stats(); });
  });
}

Server* ServerMember::server() const { return listening_ ? host_.data().server() : nullptr; }

// Resends norms, complete pushes and the log of updates until the coordinator answers.
void ServerMember::report_waiting(int64_t now_ms) {
  if (const auto& arrived = server()->waiting_arrived();
      arrived && arrived_.due({arrived->step(), arrived->lo_size()}, now_ms)) {
    Message message;
    *message.header.mutable_arrived() = *arrived;
    member_.send(std::move(message));
  }
  if (const auto& norms = server()->waiting_norms();
      norms && norms_.due({norms->step(), norms->of_tensors()}, now_ms)) {
    Message message;
    *message.header.mutable_norms() = *norms;
    member_.send(std::move(message));
  }
  if (auto part = server()->log().due(now_ms)) send_part(std::move(*part));
}

void ServerMember::send_part(wire::RecordPart part) {
  part.set_incarnation(member_.incarnation());
  Message message;
  *message.header.mutable_record_part() = std::move(part);
  member_.send(std::move(message));
}

bool ServerMember::on_signal(int64_t now_ms, int signal) {
  const bool at_once = end_request_.take(now_ms, signal);
  if (at_once || end_) return at_once;
  if (member_.takes_part()) {
    member_.set_end_signal(end_request_.signal());
  } else {
    leave_by_signal();
  }
  return at_once;
}

void ServerMember::leave_by_signal() {
  leave(static_cast<int>(ErrorCode::kPeerLost),
        "it was ended by " + signal_name(end_request_.signal()),
        {false, ErrorCode::kFailed, "", end_request_.signal()});
}

void ServerMember::fail(ErrorCode code, const std::string& text) {
  if (end_) return;
  leave(static_cast<int>(code), text, {false, code, text, 0});
}

// Sends Leave only if this process is a member.
void ServerMember::leave(int code, const std::string& text, JobEnd end) {
  end_ = std::move(end);
  if (!joined()) return;
  if (server() != nullptr) {
    for (wire::RecordPart& part : server()->log().take_rest()) send_part(std::move(part));
  }
  member_.leave(code, text);
}

}  // namespace pushpull
