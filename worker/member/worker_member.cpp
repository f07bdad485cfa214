#include "worker/member/worker_member.h"

#include <memory>
#include <utility>

#include "common/base/process.h"
#include "common/base/text.h"

namespace pushpull {

namespace {

constexpr int64_t kStopDeadlineMs = 5000;  // for the trainer to stop after the job is over

JoinOptions as_worker(JoinOptions options) {
  options.role = wire::ROLE_WORKER;
  return options;
}

}  // namespace

WorkerMember::WorkerMember(JoinOptions options, std::function<wire::Stats()> stats)
    : member_(as_worker(std::move(options))), stats_(std::move(stats)) {}

void WorkerMember::guarded(const std::function<void()>& event) {
  try {
    event();
  } catch (const Error& e) {
    fail(e.code(), e.what());
  }
}

void WorkerMember::on_message(int64_t now_ms, const Message& message) {
  now_ms_ = now_ms;
  guarded([&] {
    const wire::Header& header = message.header;
    const Member::News news = member_.on_message(now_ms, message);
    if (news == Member::News::kTerm) take_term();
    // an older State counts too: a worker that was given up and joined again must declare again
    if (header.has_state() && header.term_id() == term_id()) declared_ = header.state().declared();
    const bool joined_anew = news == Member::News::kJoined && header.has_state();
    if (news == Member::News::kState || joined_anew) take_state(member_.state());
    if (news == Member::News::kOther && header.has_eval_taken()) {
      results_.erase(header.eval_taken().number());
    }
    if (news == Member::News::kOther && header.has_ask_weights()) {
      give_weights(header.ask_weights());
    }
  });
}

// Copies: the weights may be gone before the message is.
void WorkerMember::give_weights(const wire::AskWeights& ask) {
  if (own_weights_.empty()) return;  // the work has ended
  const int64_t size = std::ssize(own_weights_);
  if (ask.count() < 1 || ask.offset() < 0 || ask.offset() > size - ask.count()) {
    throw Error(ErrorCode::kProtocol, "[weights] the coordinator asks for " +
                                          plural(ask.count(), "initial weight") + " from " +
                                          std::to_string(ask.offset()) + ", this worker has " +
                                          std::to_string(size));
  }
  const std::span<const float> part =
      own_weights_.subspan(static_cast<size_t>(ask.offset()), static_cast<size_t>(ask.count()));
  auto copy = std::make_shared<std::vector<float>>(part.begin(), part.end());
  Message message;
  message.header.mutable_own_weights()->set_incarnation(incarnation());
  message.header.mutable_own_weights()->set_offset(ask.offset());
  const std::span<const std::byte> bytes = std::as_bytes(std::span<const float>(*copy));
  message.payloads.push_back({std::move(copy), bytes});
  member_.send(std::move(message));
}

void WorkerMember::take_term() {
  declare_.reset();
  declared_ = false;
  results_.clear();
}

void WorkerMember::take_state(const wire::State& state) {
  if (state.phase() == wire::PHASE_FINISHED) finish({true, ErrorCode::kFailed, "", 0});
  if (state.phase() == wire::PHASE_FAILED) {
    fail(static_cast<ErrorCode>(state.code()), state.text());
  }
}

void WorkerMember::on_tick(int64_t now_ms) {
  now_ms_ = now_ms;
  if (left_) return;
  const bool released = end_request_.asked() && member_.state().let_go();
  const bool alone = end_request_.abandoned(now_ms, member_.silent_ms(now_ms));
  if (released || alone) finish_by_signal();
  guarded([&] {
    if (member_.joined()) repeat_requests(now_ms);
    // heartbeats continue until Leave: the computation may take a while to stop
    if (member_.joined() || !end_) member_.on_tick(now_ms, stats_);
  });
}

void WorkerMember::repeat_requests(int64_t now_ms) {
  if (!requests_.due(now_ms)) return;
  Message message;
  if (declare_ && !declared_) {
    *message.header.mutable_declare() = *declare_;
    member_.send(message);
  }
  for (const auto& [number, result] : results_) {
    *message.header.mutable_eval_result() = result;
    member_.send(message);
  }
}

bool WorkerMember::on_signal(int64_t now_ms, int signal) {
  now_ms_ = now_ms;
  if (end_request_.take(now_ms, signal)) return true;
  if (member_.takes_part()) {
    member_.set_end_signal(end_request_.signal());
  } else {
    finish_by_signal();
  }
  return false;
}

void WorkerMember::finish_by_signal() {
  finish({false, ErrorCode::kFailed, "ended by " + signal_name(end_request_.signal()),
          end_request_.signal()});
}

void WorkerMember::fail(ErrorCode code, const std::string& text) { finish({false, code, text, 0}); }

void WorkerMember::finish(JobEnd end) {
  if (end_) return;
  end_ = std::move(end);
  end_ms_ = now_ms_;
}

bool WorkerMember::stop_is_late(int64_t now_ms) const {
  return end_ && now_ms - end_ms_ > kStopDeadlineMs;
}

// The declaration of an earlier term may name an address where this worker no longer listens.
void WorkerMember::declare(uint64_t term, wire::Declare declare) {
  if (term != term_id()) return;
  declare.set_incarnation(incarnation());
  declare_ = std::move(declare);
  requests_.expire();
}

// A trainer may end an evaluation after the next term has begun: there the step has other weights.
void WorkerMember::report(uint64_t term, wire::EvalResult result) {
  if (term != term_id()) return;
  result.set_incarnation(incarnation());
  result.set_number(next_result_++);
  results_[result.number()] = std::move(result);
  requests_.expire();
}

// A process that has not joined sends no Leave.
void WorkerMember::leave(int code, const std::string& text) {
  if (member_.joined() && !left_) member_.leave(code, text, failed_);
  left_ = true;
}

}  // namespace pushpull
