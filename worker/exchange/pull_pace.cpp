#include "worker/exchange/pull_pace.h"

#include <algorithm>
#include <utility>

namespace pushpull {

namespace {

constexpr int64_t kNotReadyMs = 20;
constexpr int kMinRepeats = 3;  // before silence counts: this process may have been stopped

// The worker reports after each quarter of a window, so that the server need not stop sending.
constexpr int64_t kPartsOfWindow = 4;
// Several round trips: a worker that computes a layer neither receives nor sends.
constexpr double kWindowMs = 50.0;
constexpr int64_t kMinWindow = int64_t{2} << 20;
constexpr double kForgetting = 0.9;  // factor of the best rate at each pull

}  // namespace

// ---- PullRepeats ----

PullRepeats::PullRepeats(const ConnectionMap& connections, int64_t timeout_ms)
    : timeout_ms_(timeout_ms), servers_(static_cast<size_t>(connections.servers())) {
  for (int server = 0; server < connections.servers(); ++server) {
    at(server).answered.assign(static_cast<size_t>(connections.count(server)), 0);
  }
}

void PullRepeats::begin(int server) {
  Server& s = at(server);
  s.asked = 0;
  s.pushed_at = 0;
  std::fill(s.answered.begin(), s.answered.end(), 0);
}

void PullRepeats::ask(int server, int64_t now_ms) {
  at(server).repeats = 0;
  restart(server, now_ms);
}

void PullRepeats::ask_again(int server, int64_t now_ms) {
  ++at(server).asked;
  wait(server, now_ms);
}

void PullRepeats::overdue(int server) {
  Server& s = at(server);
  if (!std::exchange(s.not_ready, false)) ++s.repeats;
}

bool PullRepeats::hear(int server, int64_t now_ms) {
  Server& s = at(server);
  s.heard_ms = now_ms;
  return std::exchange(s.repeats, 0) > 0;
}

void PullRepeats::answer(int server, int connection, int asked) {
  std::vector<int>& answered = at(server).answered;
  if (connection < 0 || connection >= std::ssize(answered)) return;
  int& newest = answered[static_cast<size_t>(connection)];
  newest = std::max(newest, asked);
}

void PullRepeats::not_ready(int server, int64_t now_ms) {
  Server& s = at(server);
  s.repeat_ms = std::min(s.repeat_ms, now_ms + kNotReadyMs);
  s.not_ready = true;
}

bool PullRepeats::refuse(int server, const std::string& why) {
  return std::exchange(at(server).refusal, why) != why;
}

void PullRepeats::forget_refusals() {
  for (Server& s : servers_) s.refusal.clear();
}

void PullRepeats::restart(int server, int64_t now_ms) {
  at(server).heard_ms = now_ms;
  wait(server, now_ms);
}

bool PullRepeats::answered_since_push(int server, int connections) const {
  const Server& s = at(server);
  return std::all_of(s.answered.begin(), s.answered.begin() + connections,
                     [&](int answered) { return answered > s.pushed_at; });
}

std::optional<int64_t> PullRepeats::silent_ms(int server, int64_t now_ms) const {
  const Server& s = at(server);
  const int64_t silent = now_ms - s.heard_ms;
  if (s.repeats < kMinRepeats || silent <= timeout_ms_) return std::nullopt;
  return silent;
}

// ---- PullWindows ----

PullWindows::PullWindows(const ConnectionMap& connections, int64_t min_bytes, int64_t max_bytes)
    : min_bytes_(std::min(max_bytes, std::max(kMinWindow, min_bytes))), max_bytes_(max_bytes) {
  for (int server = 0; server < connections.servers(); ++server) {
    connections_.emplace_back(static_cast<size_t>(connections.count(server)));
  }
}

int64_t PullWindows::window_of(const Connection& connection) const {
  if (connection.bytes_per_ms == 0) return max_bytes_;
  return std::clamp(static_cast<int64_t>(connection.bytes_per_ms * kWindowMs), min_bytes_,
                    max_bytes_);
}

int64_t PullWindows::open(int server, int connection, bool anew, bool limited) {
  Connection& c = connections_[static_cast<size_t>(server)][static_cast<size_t>(connection)];
  if (anew) {
    c.received = 0;
    c.reported = 0;
  }
  c.window = limited ? window_of(c) : 0;
  return c.window;
}

std::optional<int64_t> PullWindows::count(int server, int connection, int64_t bytes, bool all_here,
                                          int64_t now_ms) {
  std::vector<Connection>& connections = connections_[static_cast<size_t>(server)];
  if (connection < 0 || connection >= std::ssize(connections)) return std::nullopt;
  Connection& c = connections[static_cast<size_t>(connection)];
  if (c.received == 0) {
    c.first_ms = now_ms;
    c.first_bytes = bytes;
  }
  c.received += bytes;
  if (c.window == 0) return std::nullopt;
  if (all_here) {
    measure(connections, now_ms);
    return std::nullopt;
  }
  if (c.received - c.reported < c.window / kPartsOfWindow) return std::nullopt;
  c.reported = c.received;
  return c.received;
}

// Measures the rate of a complete answer. An answer of a single message has no duration.
void PullWindows::measure(std::vector<Connection>& connections, int64_t now_ms) {
  for (Connection& c : connections) {
    const int64_t bytes = c.received - c.first_bytes;
    if (bytes <= 0) continue;
    const int64_t ms = std::max<int64_t>(1, now_ms - c.first_ms);
    const double rate = static_cast<double>(bytes) / static_cast<double>(ms);
    c.bytes_per_ms = std::max(rate, c.bytes_per_ms * kForgetting);
  }
}

}  // namespace pushpull
