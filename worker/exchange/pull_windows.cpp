#include "worker/exchange/pull_windows.h"

#include <algorithm>

namespace pushpull {

namespace {

// The server hears what has arrived while so much less than the window is under way that it need
// not stop.
constexpr int64_t kPartsOfWindow = 4;
// A worker that computes a layer takes in no messages and sends none meanwhile, so it is several
// round trips.
constexpr double kWindowMs = 50.0;
constexpr int64_t kLeastWindow = int64_t{2} << 20;
constexpr double kForgetting = 0.9;  // of the best rate, with each pull

}  // namespace

PullWindows::PullWindows(const ConnectionMap& connections, int64_t least_bytes, int64_t most_bytes)
    : least_bytes_(std::min(most_bytes, std::max(kLeastWindow, least_bytes))),
      most_bytes_(most_bytes) {
  for (int server = 0; server < connections.servers(); ++server) {
    connections_.emplace_back(static_cast<size_t>(connections.count(server)));
  }
}

int64_t PullWindows::window_of(const Connection& connection) const {
  if (connection.bytes_per_ms == 0) return most_bytes_;
  return std::clamp(static_cast<int64_t>(connection.bytes_per_ms * kWindowMs), least_bytes_,
                    most_bytes_);
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

// The answer is complete. A single message has taken no time and says nothing of the rate.
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
