#include "worker/member/control.h"

#include <unistd.h>

#include <algorithm>
#include <array>

namespace pushpull {

namespace {

constexpr int64_t kRepeatMs = 1000;
constexpr int64_t kStopDeadlineMs = 5000;  // for the trainer to notice that the job is over
constexpr int kLingerMs = 1000;
constexpr int64_t kEchoMs = 300;

}  // namespace

Control::Control(std::unique_ptr<Dealer> dealer, ControlOptions options, SignalFd& signals)
    : options_(std::move(options)),
      address_(dealer->address()),
      dealer_(std::move(dealer)),
      signals_(signals),
      heard_ms_(clock_.now_ms()),
      thread_([this](const std::stop_token& stop) { loop(stop); }) {}

Control::~Control() {
  thread_.request_stop();
  posted_.wake();
}

void Control::declare(wire::Declare declare) {
  const std::lock_guard lock(mutex_);
  declare_ = std::move(declare);
  post_ = true;
  posted_.wake();
}

void Control::report(wire::EvalResult result) {
  const std::lock_guard lock(mutex_);
  result.set_number(next_result_++);
  results_[result.number()] = std::move(result);
  post_ = true;
  posted_.wake();
}

void Control::set_times(const TimeTotals& times) {
  const std::lock_guard lock(mutex_);
  times_ = times;
}

void Control::set_traffic(int64_t sent, int64_t received, int64_t rejected) {
  bytes_sent_.store(sent, std::memory_order_relaxed);
  bytes_received_.store(received, std::memory_order_relaxed);
  peers_rejected_.store(rejected, std::memory_order_relaxed);
}

void Control::leave(int code, const std::string& text) {
  const std::lock_guard lock(mutex_);
  leave_.emplace();
  leave_->set_incarnation(options_.incarnation);
  leave_->set_code(code);
  leave_->set_text(text);
  if (failed_) *leave_->mutable_failed() = *failed_;
}

void Control::note_failed(wire::Applied push) {
  const std::lock_guard lock(mutex_);
  failed_ = std::move(push);
}

std::optional<wire::State> Control::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

std::optional<JobEnd> Control::end() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

void Control::finish(JobEnd end) {
  {
    const std::lock_guard lock(mutex_);
    if (end_) return;
    end_ = std::move(end);
  }
  over_since_ms_ = clock_.now_ms();
  over_.store(true, std::memory_order_relaxed);
  news_.wake();
}

void Control::take_state(const wire::State& state) {
  const auto phase = state.phase();
  {
    const std::lock_guard lock(mutex_);
    declared_ = state.declared();  // not any more, once we were given up and joined anew
    if (state_ && state_->version() >= state.version()) return;
    state_ = state;
    heartbeat_now_ = true;  // so that the coordinator knows at once
  }
  if (phase == wire::PHASE_FINISHED) finish({true, ErrorCode::kFailed, "", 0});
  if (phase == wire::PHASE_FAILED) {
    finish({false, static_cast<ErrorCode>(state.code()), state.text(), 0});
  }
  news_.wake();
}

void Control::take_message(const Message& message, int64_t now_ms) {
  heard_ms_ = now_ms;
  const wire::Header& header = message.header;
  if (header.has_state()) {
    take_state(header.state());
  } else if (header.has_eval_taken()) {
    const std::lock_guard lock(mutex_);
    results_.erase(header.eval_taken().number());
  } else if (header.has_refused()) {
    finish({false, static_cast<ErrorCode>(header.refused().code()), header.refused().text(), 0});
  }
}

void Control::send_due(int64_t now_ms) {
  const auto interval_ms =
      std::min<int64_t>(1000, static_cast<int64_t>(options_.heartbeat_timeout_s * 200));
  const std::lock_guard lock(mutex_);
  if (post_ || now_ms - repeat_ms_ >= kRepeatMs) {
    post_ = false;
    repeat_ms_ = now_ms;
    Message message;
    if (declare_ && !declared_) {
      *message.header.mutable_declare() = *declare_;
      dealer_->send(message);
    }
    for (const auto& [number, result] : results_) {
      *message.header.mutable_eval_result() = result;
      dealer_->send(message);
    }
  }
  if (!heartbeat_now_ && now_ms - heartbeat_ms_ < interval_ms) return;
  heartbeat_now_ = false;
  heartbeat_ms_ = now_ms;
  Message message;
  wire::Heartbeat* heartbeat = message.header.mutable_heartbeat();
  heartbeat->set_incarnation(options_.incarnation);
  heartbeat->set_state_version(state_ ? state_->version() : -1);
  wire::Stats* stats = heartbeat->mutable_stats();
  stats->set_peak_rss_kib(peak_rss_kib());
  stats->set_cpu_seconds(cpu_seconds());
  stats->set_rejected_frames(dealer_->rejected_frames() +
                             peers_rejected_.load(std::memory_order_relaxed));
  stats->set_bytes_pushed(bytes_sent_.load(std::memory_order_relaxed));
  stats->set_bytes_pulled(bytes_received_.load(std::memory_order_relaxed));
  times_.put(stats);
  dealer_->send(message);
}

void Control::loop(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::array<zmq::pollitem_t, 3> items{{{dealer_->socket().handle(), 0, ZMQ_POLLIN, 0},
                                          {nullptr, posted_.fd(), ZMQ_POLLIN, 0},
                                          {nullptr, signals_.fd(), ZMQ_POLLIN, 0}}};
    poll_sockets(items, 50);
    posted_.clear();
    const int64_t before = clock_.now_ms();
    while (auto message = dealer_->receive()) take_message(*message, before);
    const int64_t now = clock_.now_ms();
    if (const int signal = signals_.take(); signal != 0) {
      // asked twice; the same signal may come from the terminal and from a wrapper at once
      if (over() && now - over_since_ms_ > kEchoMs) _exit(128 + signal);
      finish({false, ErrorCode::kFailed, "ended by " + signal_name(signal), signal});
    }
    const int64_t silent = now - heard_ms_;
    if (silent > static_cast<int64_t>(options_.heartbeat_timeout_s * 1000)) {
      finish({false, ErrorCode::kPeerLost,
              "[job] " + options_.coordinator + " at " + address_ + " has been silent for " +
                  std::to_string(silent / 1000) + " s",
              0});
    }
    if (over_since_ms_ >= 0 && now - over_since_ms_ > kStopDeadlineMs) {
      const std::optional<JobEnd> why = end();
      Log("worker").error(why->text + "; the computation did not stop in time");
      _exit(why->success ? 0 : static_cast<int>(why->code));
    }
    send_due(now);
  }
  const std::lock_guard lock(mutex_);
  if (leave_) {
    Message message;
    *message.header.mutable_leave() = *leave_;
    dealer_->set_linger_ms(kLingerMs);
    dealer_->send(message);
  }
  dealer_.reset();
}

}  // namespace pushpull
