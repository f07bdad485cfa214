#include "worker/member/control.h"

#include <array>
#include <span>
#include <utility>

#include "common/device/device.h"
#include "common/host/resources.h"
#include "common/net/frames.h"

namespace pushpull {

namespace {

constexpr int kPollMs = 50;
constexpr int kLingerMs = 1000;
// A coordinator that notices the same silence declares the peer lost within this time.
constexpr int64_t kReasonMs = 5000;

}  // namespace

Control::Control(std::unique_ptr<Dealer> dealer, const JoinOptions& options, WorkerOwner& owner,
                 Keys keys)
    : address_(dealer->address()),
      keys_(std::move(keys)),
      dealer_(std::move(dealer)),
      owner_(owner),
      member_(options, [this] { return stats(); }),
      thread_([this](const std::stop_token& stop) { loop(stop); }) {}

Control::~Control() {
  thread_.request_stop();
  posted_.wake();
}

bool Control::wait_joined() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (member_.joined()) return true;
      if (member_.end()) return false;
    }
    zmq::pollitem_t item{nullptr, news_.fd(), ZMQ_POLLIN, 0};
    poll_sockets({&item, 1}, 200);
    news_.clear();
  }
}

uint64_t Control::enter_term() {
  const std::lock_guard lock(mutex_);
  term_id_ = member_.term_id();
  run_id_ = member_.run_id();
  over_.store(member_.end().has_value(), std::memory_order_relaxed);
  return term_id_;
}

bool Control::wait_for_reason() {
  for (int64_t waited_ms = 0; !over() && waited_ms < kReasonMs;) {
    zmq::pollitem_t item{nullptr, news_.fd(), ZMQ_POLLIN, 0};
    poll_sockets({&item, 1}, kPollMs);
    news_.clear();
    const std::lock_guard lock(mutex_);
    // does not count the time in which the coordinator itself is silent: it may be restarting
    if (!member_.misses_coordinator(clock_.now_ms())) waited_ms += kPollMs;
  }
  return over();
}

void Control::declare(wire::Declare declare) {
  const std::lock_guard lock(mutex_);
  member_.declare(term_id_, std::move(declare));
  posted_.wake();
}

void Control::offer_weights(std::span<const float> weights) {
  const std::lock_guard lock(mutex_);
  member_.offer_weights(weights);
}

void Control::report(wire::EvalResult result) {
  const std::lock_guard lock(mutex_);
  member_.report(term_id_, std::move(result));
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

void Control::report_refused(std::shared_ptr<ZapHandler> handler) {
  const std::lock_guard lock(mutex_);
  handler_ = std::move(handler);
}

void Control::leave(int code, const std::string& text) {
  const std::lock_guard lock(mutex_);
  member_.leave(code, text);
}

void Control::note_failed(wire::Applied push) {
  const std::lock_guard lock(mutex_);
  member_.note_failed(std::move(push));
}

int64_t Control::evaluated() const {
  const std::lock_guard lock(mutex_);
  if (member_.state().version() < 0 || term_over()) return -1;
  return member_.state().evaluated_barrier();
}

std::optional<wire::State> Control::state() const {
  const std::lock_guard lock(mutex_);
  if (member_.state().version() < 0 || term_over()) return std::nullopt;
  return member_.state();
}

std::optional<JobEnd> Control::end() const {
  const std::lock_guard lock(mutex_);
  if (!member_.end() && term_over()) {
    JobEnd end;
    end.next_term = true;
    return end;
  }
  return member_.end();
}

// Requires mutex_.
wire::Stats Control::stats() const {
  wire::Stats stats;
  put_usage(process_usage(), stats);
  put_traffic(stats);
  device::put_memory_use(device::memory_use(), stats);
  stats.set_rejected_frames(dealer_->rejected_frames() +
                            peers_rejected_.load(std::memory_order_relaxed));
  stats.set_bytes_pushed(bytes_sent_.load(std::memory_order_relaxed));
  stats.set_bytes_pulled(bytes_received_.load(std::memory_order_relaxed));
  if (handler_) stats.set_refused_peers(handler_->refused_peers());
  times_.put(&stats);
  activity_.put(&stats);
  owner_.add_logged(&stats);
  return stats;
}

void Control::send_all() {
  for (const Message& message : member_.take_outgoing()) dealer_->send(message);
  for (const std::string& line : member_.take_notices()) Log("worker").info(line);
  if (!handler_) return;
  for (const std::string& line : handler_->take_notices()) Log("worker").warn(line);
}

// Wakes the trainer's thread if there is news for it.
void Control::note_news() {
  const bool joined = member_.joined();
  const bool ended = member_.end().has_value() || term_over();
  const int64_t version = member_.state().version();
  if (joined == news_joined_ && ended == over() && version == news_version_) return;
  news_joined_ = joined;
  news_version_ = version;
  over_.store(ended, std::memory_order_relaxed);
  news_.wake();
}

// Requires mutex_.
void Control::take_signal(int64_t now_ms) {
  const int signal = owner_.take_signal();
  if (signal != 0 && member_.on_signal(now_ms, signal)) owner_.end_now(128 + signal);
  const std::string failure = owner_.failure();
  if (!failure.empty()) member_.fail(owner_.failure_code(), failure);
}

// Requires mutex_.
void Control::end_late_stop(int64_t now_ms) {
  if (stop_was_late_ || !member_.stop_is_late(now_ms) || !member_.joined()) return;
  stop_was_late_ = true;
  const JobEnd& end = *member_.end();
  Log("worker").error(end.text + "; the computation did not stop in time");
  owner_.end_now(end.success ? 0 : static_cast<int>(end.code));
}

void Control::turn() {
  const std::lock_guard lock(mutex_);
  const int64_t now = clock_.now_ms();
  while (auto message = dealer_->receive()) member_.on_message(now, *message);
  if (const std::string line = dealer_->take_warning(); !line.empty()) Log("worker").warn(line);
  if (dealer_->take_closed()) member_.on_closed(now);
  state_version_.store(member_.state().version(), std::memory_order_release);
  if (!member_.joined() && dealer_->foreign_version() != 0) {
    member_.fail(ErrorCode::kProtocol, foreign_version_text(address_, dealer_->foreign_version()));
  }
  if (!member_.joined() && !member_.end()) {
    if (const auto why = dealer_->refused()) member_.fail(ErrorCode::kRefused, *why);
  }
  take_signal(now);
  member_.on_tick(now);
  if (member_.needs_connection(now)) dealer_->open_second();
  end_late_stop(now);
  send_all();
  note_news();
}

void Control::loop(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::array<zmq::pollitem_t, 3> items{{{dealer_->socket().handle(), 0, ZMQ_POLLIN, 0},
                                          {nullptr, posted_.fd(), ZMQ_POLLIN, 0},
                                          {nullptr, owner_.signal_fd(), ZMQ_POLLIN, 0}}};
    poll_sockets(std::span(items).first(owner_.signal_fd() < 0 ? 2 : 3), kPollMs);
    posted_.clear();
    turn();
  }
  const std::lock_guard lock(mutex_);
  // before joining, the Hello may have reached no coordinator: do not linger for it
  if (member_.joined()) dealer_->set_linger_ms(kLingerMs);
  send_all();
  dealer_.reset();
}

}  // namespace pushpull
