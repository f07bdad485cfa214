#include "worker/exchange/pull.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull {

namespace {

constexpr size_t kMaxRefusalBytes = 400;

}  // namespace

// ---- InPlaceWeights ----

InPlaceWeights::InPlaceWeights(int servers, bool possible)
    : possible_(possible), servers_(static_cast<size_t>(servers)) {}

// Device memory is shared with a single server only: the host assembles the weights of several.
void InPlaceWeights::share(int server, bool shared, bool on_device) {
  Server& s = servers_[static_cast<size_t>(server)];
  s.in_place = shared && possible_;
  s.on_device = s.in_place && on_device && servers_.size() == 1;
}

void InPlaceWeights::ask(int server, bool newest, bool averages) {
  Server& s = servers_[static_cast<size_t>(server)];
  s.asked = s.in_place && !averages && !(newest && newest_not_contiguous_);
  s.asked_on_device = s.asked && s.on_device;
}

void InPlaceWeights::ask_again(int server) {
  Server& s = servers_[static_cast<size_t>(server)];
  s.asked = s.asked && s.in_place;
  s.asked_on_device = s.asked && s.asked_on_device && s.on_device;
}

bool InPlaceWeights::any() const {
  return std::any_of(servers_.begin(), servers_.end(),
                     [](const Server& server) { return server.in_place || server.asked; });
}

// Weights of mixed versions may be in two generations. Otherwise the server has stopped sharing, or
// had no shared memory for a generation. Such weights are copied from now on; from a device, the
// server copies them.
void InPlaceWeights::set_not_contiguous(int server, bool newest) {
  Server& s = servers_[static_cast<size_t>(server)];
  if (newest) {
    newest_not_contiguous_ = true;
  } else if (s.asked_on_device) {
    s.on_device = false;
  } else {
    s.in_place = false;
  }
}

// ---- Pull ----

Pull::Pull(SenderId sender, const Options& options, const Parts& parts)
    : sender_(sender),
      connections_(parts.connections),
      schedule_(parts.schedule),
      delivery_(parts.delivery),
      outgoing_(parts.outgoing),
      averages_(options.averages),
      in_place_(connections_.servers(), options.may_be_in_place),
      state_(connections_, parts.weights),
      windows_(connections_, options.min_window_bytes, options.max_window_bytes),
      repeats_(connections_, options.timeout_ms) {}

void Pull::share_memory(int server, bool shared, bool on_device) {
  in_place_.share(server, shared, on_device);
  if (shared) delivery_.shares_memory(server);
}

// ---- asking ----

void Pull::start(const PullAim& aim, int64_t now_ms) {
  running_ = true;
  ++number_;
  aim_ = aim;
  asks_in_place_ = false;
  if (!aim.leases) state_.begin(aim);
  for (int server = 0; server < connections_.servers(); ++server) {
    repeats_.begin(server);
    // a wait for a lease asks other servers only which pushes have arrived
    const bool asked =
        aim.leases ? server == 0 || !delivery_.arrived(server) : state_.missing(server) > 0;
    if (!asked) continue;
    send(server, false, now_ms);
    asks_in_place_ = asks_in_place_ || in_place_.asked(server);
  }
}

int Pull::connections_asked(int server) const {
  return aim_.leases ? 1 : connections_.count(server);
}

void Pull::send(int server, bool repeat, int64_t now_ms) {
  repeat ? repeats_.ask_again(server, now_ms) : repeats_.ask(server, now_ms);
  if (repeat) {
    in_place_.ask_again(server);
  } else {
    in_place_.ask(server, aim_.is_newest(), aim_.at_barrier && averages_);
  }
  for (int i = 0; i < connections_asked(server); ++i) {
    wire::Pull pull = pull_on(server, i, repeat);
    if (delivery_.take_along(server, i, pull)) continue;
    Message message;
    wire::Exchange* exchange = message.header.mutable_exchange();
    sender_.put(exchange->mutable_sender());
    *exchange->mutable_pull() = std::move(pull);
    outgoing_.push_back({server, std::move(message), i});
  }
}

wire::Pull Pull::pull_on(int server, int connection, bool repeat) {
  wire::Pull pull;
  pull.set_number(number_);
  pull.set_clock(aim_.clock);
  pull.set_latest(aim_.is_newest());
  pull.set_barrier(aim_.at_barrier);
  pull.set_lease_only(aim_.leases);
  if (aim_.after) {
    pull.set_after_step(aim_.after->step);
    pull.set_after_lo(static_cast<int32_t>(aim_.after->range.lo));
    pull.set_after_hi(static_cast<int32_t>(aim_.after->range.hi));
  }
  for (const Range& slices : connections_.part().pulled) {
    wire::SliceRange* wanted = pull.add_wanted();
    wanted->set_lo(static_cast<int32_t>(slices.lo));
    wanted->set_hi(static_cast<int32_t>(slices.hi));
  }
  pull.set_want_lease(schedule_.draws_leases() && server == 0 && connection == 0);
  pull.set_newest_lease(schedule_.newest_lease());
  pull.set_in_place(in_place_.asked(server));
  pull.set_on_device(in_place_.asked_on_device(server));
  pull.set_lane(connection);
  pull.set_lanes(connections_asked(server));
  pull.set_asked(repeats_.asked(server));
  const bool limited = is_exact() && !in_place_.asked(server);
  pull.set_window_bytes(windows_.open(server, connection, !repeat || !is_exact(), limited));
  if (!repeat || !is_exact()) return pull;
  pull.set_heard(repeats_.answered(server, connection));
  pull.set_received_bytes(windows_.received(server, connection));
  state_.put_missing(server, connection, &pull);
  return pull;
}

void Pull::end() {
  if (is_complete()) repeats_.forget_refusals();
  running_ = false;
}

void Pull::restart(int64_t now_ms) {
  for (int server = 0; server < connections_.servers(); ++server) {
    repeats_.restart(server, now_ms);
  }
}

void Pull::start_over(int server, int64_t now_ms) {
  repeats_.begin(server);
  repeats_.restart(server, now_ms);
  in_place_.share(server, false, false);
  if (running_ && !settled(server)) send(server, true, now_ms);
}

void Pull::on_tick(int64_t now_ms) {
  for (const int server : absent_) repeats_.restart(server, now_ms);
  if (!running_) return repeat_kept(now_ms);
  for (int server = 0; server < connections_.servers(); ++server) {
    const bool waits = !settled(server) || (aim_.leases && server == 0);
    if (!waits || !repeats_.due(server, now_ms)) continue;
    if (const std::optional<int64_t> silent_ms = repeats_.silent_ms(server, now_ms)) {
      throw Error(ErrorCode::kUnreachable, silence_text(server, *silent_ms));
    }
    repeats_.overdue(server);
    send(server, true, now_ms);
  }
}

// Without a pull, no answer shows which pushes a replacement server lacks: they are all repeated.
void Pull::repeat_kept(int64_t now_ms) {
  for (int server = 0; server < connections_.servers(); ++server) {
    if (!delivery_.catches_up(server) || !repeats_.due(server, now_ms)) continue;
    delivery_.send_again(server);
    repeats_.wait(server, now_ms);
  }
}

std::string Pull::silence_text(int server, int64_t silent_ms) const {
  const std::string text = "[pull] server " + std::to_string(server) + " has not answered for " +
                           std::to_string(silent_ms / 1000) + " s, waiting for " + waiting_for();
  const std::string& refusal = repeats_.refusal(server);
  return refusal.empty() ? text : text + "; it has dropped a message of this worker: " + refusal;
}

std::string Pull::waiting_for() const {
  if (aim_.leases) return "a lease of server 0";
  std::string servers;
  for (int server = 0; server < connections_.servers(); ++server) {
    if (state_.missing(server) == 0) continue;
    servers += (servers.empty() ? "" : ", ") + std::to_string(server);
  }
  return "weights of step " + std::to_string(aim_.clock) + " of server " + servers;
}

// ---- answers ----

bool Pull::on_weights(int server, const Message& message, int64_t now_ms) {
  const wire::Weights& weights = message.header.weights();
  const bool asked_again = repeats_.hear(server, now_ms);
  if (!brings_weights() || weights.pull() != number_) return false;
  const PullState::Taken taken =
      state_.take(server, weights, message.payloads, in_place_.asked(server));
  if (taken == PullState::kNotContiguous) {
    in_place_.set_not_contiguous(server, aim_.is_newest());
    running_ = false;
    return false;
  }
  count_received(server, message, now_ms);
  repeats_.wait(server, now_ms);  // the rest of the answer may be in flight
  check_pushes(server, asked_again, now_ms);
  if (asked_again && taken == PullState::kNone) end_if_past(server);
  return taken == PullState::kSome;
}

void Pull::count_received(int server, const Message& message, int64_t now_ms) {
  const int connection = message.header.weights().lane();
  int64_t bytes = 0;
  for (const Payload& payload : message.payloads) bytes += std::ssize(payload.bytes);
  const std::optional<int64_t> report =
      windows_.count(server, connection, bytes, state_.missing(server) == 0, now_ms);
  if (!report) return;
  Message out;
  wire::Received* received = out.header.mutable_received();
  sender_.put(received->mutable_sender());
  received->set_pull(number_);
  received->set_lane(connection);
  received->set_bytes(*report);
  outgoing_.push_back({server, std::move(out), connection});
}

// Each answer with weights says which pushes have arrived. A push that has not arrived when the
// pull was repeated, or when the answer is complete, is lost. A server that answers a repeated pull
// only when a step is complete reports its pushes by Status.
void Pull::check_pushes(int server, bool asked_again, int64_t now_ms) {
  if (delivery_.arrived(server) || delivery_.is_running()) return;
  const bool some_missing = state_.missing(server) > 0;
  if (some_missing && (!asked_again || aim_.versions != PullAim::kPerServer)) return;
  send_pushes_again(server);
  if (!some_missing) send(server, true, now_ms);
}

void Pull::send_pushes_again(int server) {
  repeats_.push_again(server);
  delivery_.send_again(server);
}

void Pull::on_status(int server, const wire::Status& status, int64_t now_ms) {
  repeats_.hear(server, now_ms);
  if (!status.refused().empty()) on_refusal(server, status.refused());
  if (status.not_ready()) return repeats_.not_ready(server, now_ms);
  if (!running_ || status.pull() != number_) return;
  repeats_.answer(server, status.lane(), status.asked());
  // A push is lost only if the server has answered a later pull without it: over a slow link a push
  // is in flight for many seconds, and a repetition would double the wait.
  if (!delivery_.arrived(server) && !delivery_.is_running() &&
      repeats_.answered_since_push(server, connections_asked(server))) {
    send_pushes_again(server);
  }
  end_if_past(server);
}

// Makes the text printable first: it comes from the network.
void Pull::on_refusal(int server, const std::string& text) {
  const std::string why = printable(text, kMaxRefusalBytes);
  if (!repeats_.refuse(server, why)) return;
  warnings_.push_back("server " + std::to_string(server) +
                      " has dropped a message of this worker: " + why);
}

void Pull::end_if_past(int server) {
  if (aim_.may_be_past && state_.missing(server) > 0) running_ = false;
}

bool Pull::settled(int server) const {
  return delivery_.arrived(server) && (aim_.leases || state_.missing(server) == 0);
}

bool Pull::is_complete() const {
  for (int server = 0; server < connections_.servers(); ++server) {
    if (!settled(server)) return false;
  }
  return true;
}

}  // namespace pushpull
