#include "worker/exchange/pull_repeats.h"

#include <algorithm>
#include <utility>

namespace pushpull {

namespace {

constexpr int64_t kNotReadyMs = 20;
constexpr int kLeastRepeats = 3;  // before silence counts: we may have been stopped ourselves

}  // namespace

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
  if (s.repeats < kLeastRepeats || silent <= timeout_ms_) return std::nullopt;
  return silent;
}

}  // namespace pushpull
