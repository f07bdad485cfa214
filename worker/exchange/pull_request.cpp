#include "worker/exchange/pull_request.h"

#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull {

namespace {

constexpr size_t kMostRefusalBytes = 400;

}  // namespace

PullRequest::PullRequest(SenderId sender, const Options& options, const Parts& parts)
    : sender_(sender),
      connections_(parts.connections),
      schedule_(parts.schedule),
      delivery_(parts.delivery),
      outgoing_(parts.outgoing),
      in_place_(connections_.servers(), options.may_lie_in_place),
      progress_(connections_, parts.weights),
      windows_(connections_, options.least_window_bytes, options.most_window_bytes),
      repeats_(connections_, options.timeout_ms) {}

void PullRequest::share_memory(int server, bool shared, bool on_device) {
  in_place_.share(server, shared, on_device);
  if (shared) delivery_.shares_memory(server);
}

// ---- asking ----

void PullRequest::start(const PullAim& aim, int64_t now_ms) {
  running_ = true;
  ++number_;
  aim_ = aim;
  if (!aim.leases) progress_.begin(aim);
  for (int server = 0; server < connections_.servers(); ++server) {
    repeats_.begin(server);
    // where a lease is waited for, other servers are only asked what they have of our pushes
    const bool asked =
        aim.leases ? server == 0 || !delivery_.arrived(server) : progress_.missing(server) > 0;
    if (asked) send(server, false, now_ms);
  }
}

int PullRequest::connections_asked(int server) const {
  return aim_.leases ? 1 : connections_.count(server);
}

void PullRequest::send(int server, bool repeat, int64_t now_ms) {
  repeat ? repeats_.ask_again(server, now_ms) : repeats_.ask(server, now_ms);
  in_place_.ask(server, aim_.is_newest());
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

wire::Pull PullRequest::pull_on(int server, int connection, bool repeat) {
  wire::Pull pull;
  pull.set_number(number_);
  pull.set_clock(aim_.clock);
  pull.set_latest(aim_.is_newest());
  pull.set_barrier(aim_.at_barrier);
  pull.set_lease_only(aim_.leases);
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
  progress_.put_missing(server, connection, &pull);
  return pull;
}

void PullRequest::end() {
  if (is_complete()) repeats_.forget_refusals();
  running_ = false;
}

void PullRequest::restart(int64_t now_ms) {
  for (int server = 0; server < connections_.servers(); ++server) {
    repeats_.restart(server, now_ms);
  }
}

void PullRequest::start_over(int server, int64_t now_ms) {
  repeats_.begin(server);
  repeats_.restart(server, now_ms);
  in_place_.share(server, false, false);
  if (running_ && !settled(server)) send(server, true, now_ms);
}

void PullRequest::on_tick(int64_t now_ms) {
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

// Nothing is asked that would show what a process in a lost server's place lacks.
void PullRequest::repeat_kept(int64_t now_ms) {
  for (int server = 0; server < connections_.servers(); ++server) {
    if (!delivery_.catches_up(server) || !repeats_.due(server, now_ms)) continue;
    delivery_.send_again(server);
    repeats_.wait(server, now_ms);
  }
}

std::string PullRequest::silence_text(int server, int64_t silent_ms) const {
  const std::string text = "[pull] server " + std::to_string(server) + " has not answered for " +
                           std::to_string(silent_ms / 1000) + " s, waiting for " + waiting_for();
  const std::string& refusal = repeats_.refusal(server);
  return refusal.empty() ? text : text + "; it has dropped a message of this worker: " + refusal;
}

std::string PullRequest::waiting_for() const {
  if (aim_.leases) return "a lease of server 0";
  std::string servers;
  for (int server = 0; server < connections_.servers(); ++server) {
    if (progress_.missing(server) == 0) continue;
    servers += (servers.empty() ? "" : ", ") + std::to_string(server);
  }
  return "weights of step " + std::to_string(aim_.clock) + " of server " + servers;
}

// ---- answers ----

bool PullRequest::on_weights(int server, const Message& message, int64_t now_ms) {
  const wire::Weights& weights = message.header.weights();
  const bool asked_again = repeats_.hear(server, now_ms);
  if (!brings_weights() || weights.pull() != number_) return false;
  const PullProgress::Taken taken =
      progress_.take(server, weights, message.payloads, in_place_.asked(server));
  if (taken == PullProgress::kApart) {
    in_place_.lies_apart(server, aim_.is_newest());
    running_ = false;
    return false;
  }
  count_received(server, message, now_ms);
  repeats_.wait(server, now_ms);  // the rest of the answer may be under way
  check_pushes(server, asked_again, now_ms);
  if (asked_again && taken == PullProgress::kNone) end_if_past(server);
  return taken == PullProgress::kSome;
}

void PullRequest::count_received(int server, const Message& message, int64_t now_ms) {
  const int connection = message.header.weights().lane();
  int64_t bytes = 0;
  for (const Payload& payload : message.payloads) bytes += std::ssize(payload.bytes);
  const std::optional<int64_t> report =
      windows_.count(server, connection, bytes, progress_.missing(server) == 0, now_ms);
  if (!report) return;
  Message out;
  wire::Received* received = out.header.mutable_received();
  sender_.put(received->mutable_sender());
  received->set_pull(number_);
  received->set_lane(connection);
  received->set_bytes(*report);
  outgoing_.push_back({server, std::move(out), connection});
}

// A server that answers with weights says at once which pushes it has. What it lacks when it was
// asked again, or when it has nothing more to send, is lost. Where it answers a repeated pull only
// once a step is whole, its Status says which pushes it has.
void PullRequest::check_pushes(int server, bool asked_again, int64_t now_ms) {
  if (delivery_.arrived(server) || delivery_.is_running()) return;
  const bool some_missing = progress_.missing(server) > 0;
  if (some_missing && (!asked_again || aim_.versions != PullAim::kPerServer)) return;
  send_pushes_again(server);
  if (!some_missing) send(server, true, now_ms);
}

void PullRequest::send_pushes_again(int server) {
  repeats_.push_again(server);
  delivery_.send_again(server);
}

void PullRequest::on_status(int server, const wire::Status& status, bool has_lease,
                            int64_t now_ms) {
  repeats_.hear(server, now_ms);
  if (!status.refused().empty()) on_refusal(server, status.refused());
  if (status.not_ready()) return repeats_.not_ready(server, now_ms);
  if (aim_.leases && has_lease) running_ = false;
  if (!running_ || status.pull() != number_) return;
  repeats_.answer(server, status.lane(), status.asked());
  // Only what a server lacks when it has answered a later question is lost: over a slow link a push
  // is under way for many seconds, and to repeat it then would double the wait.
  if (!delivery_.arrived(server) && !delivery_.is_running() &&
      repeats_.answered_since_push(server, connections_asked(server))) {
    send_pushes_again(server);
  }
  end_if_past(server);
}

// Its text comes from the network.
void PullRequest::on_refusal(int server, const std::string& text) {
  const std::string why = printable(text, kMostRefusalBytes);
  if (!repeats_.refuse(server, why)) return;
  warnings_.push_back("server " + std::to_string(server) +
                      " has dropped a message of this worker: " + why);
}

void PullRequest::end_if_past(int server) {
  if (aim_.may_be_past && progress_.missing(server) > 0) running_ = false;
}

bool PullRequest::settled(int server) const {
  return delivery_.arrived(server) && (aim_.leases || progress_.missing(server) == 0);
}

bool PullRequest::is_complete() const {
  for (int server = 0; server < connections_.servers(); ++server) {
    if (!settled(server)) return false;
  }
  return true;
}

}  // namespace pushpull
