// The pace of a pull: PullRepeats decides when a server is asked again, when its silence is too
// long and when its answers show that a push is lost; PullWindows limits the bytes of weights in
// flight on each connection. Does no I/O; the caller passes the time. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/exchange/to_server.h"

namespace pushpull {

constexpr int64_t kPullRepeatMs = 1000;  // time until an unanswered pull is repeated

// Also keeps the reason of a server's last refusal, for the error message when it falls silent.
class PullRepeats {
 public:
  // timeout_ms: longest silence of a server.
  PullRepeats(const ConnectionMap& connections, int64_t timeout_ms);

  // ---- what the worker sends ----
  // Starts a pull at this server.
  void begin(int server);
  // Records that the pull is sent for the first time.
  void ask(int server, int64_t now_ms);
  // Records that the pull is repeated.
  void ask_again(int server, int64_t now_ms);
  // Records that the pull is repeated because no answer came in time.
  void overdue(int server);
  // Records that pushes are sent again.
  void push_again(int server) { at(server).pushed_at = at(server).asked; }

  // ---- what the server answers ----
  // Records a message of the server. Returns true if the pull was repeated since the last one.
  bool hear(int server, int64_t now_ms);
  // Records an answer to the running pull.
  //   asked: the repetition that it answers.
  void answer(int server, int connection, int asked);
  // Restarts the time until the next repetition: the rest of an answer may be in flight.
  void wait(int server, int64_t now_ms) { at(server).repeat_ms = now_ms + kPullRepeatMs; }
  // Records that the server does not know this worker yet: the pull is due again soon, and that
  // repetition does not count as unanswered.
  void not_ready(int server, int64_t now_ms);
  // Records that the server has refused a message of this worker. Returns true if the reason is
  // new.
  bool refuse(int server, const std::string& why);
  // Drops all refusals: all weights and pushes have arrived.
  void forget_refusals();
  // Restarts the time of silence.
  void restart(int server, int64_t now_ms);

  // ---- queries ----
  // Repetitions of the running pull so far.
  int asked(int server) const { return at(server).asked; }
  // The newest repetition that was answered on this connection.
  int answered(int server, int connection) const {
    return at(server).answered[static_cast<size_t>(connection)];
  }
  // Returns true if the server has answered, on each of the first `connections` connections, a pull
  // that was sent after the last push. Connections keep the order, and a
  // server reads a ring before the socket, so a push that has not arrived by then is lost.
  bool answered_since_push(int server, int connections) const;
  // Returns true if the server must be asked again. Call `silent_ms` first.
  bool due(int server, int64_t now_ms) const { return now_ms >= at(server).repeat_ms; }
  // Returns the time of the server's silence if it exceeds the timeout.
  std::optional<int64_t> silent_ms(int server, int64_t now_ms) const;
  // The last refusal that still matters; empty if there is none.
  const std::string& refusal(int server) const { return at(server).refusal; }

 private:
  struct Server {
    int64_t repeat_ms = -1;  // time of the next repetition
    int64_t heard_ms = -1;
    int repeats = 0;            // since its last message
    int asked = 0;              // repetitions of the running pull
    int pushed_at = 0;          // `asked` when pushes were last sent
    bool not_ready = false;     // its last answer was "not ready"
    std::string refusal;        // the last one
    std::vector<int> answered;  // by connection: the newest repetition that was answered
  };
  Server& at(int server) { return servers_[static_cast<size_t>(server)]; }
  const Server& at(int server) const { return servers_[static_cast<size_t>(server)]; }

  const int64_t timeout_ms_;
  std::vector<Server> servers_;
};

// A window holds about as many bytes as the link carries in 50 ms, measured on earlier pulls. More
// bytes would only wait in queues, where the slices that forward needs first cannot overtake them.
class PullWindows {
 public:
  // min_bytes, max_bytes: limits of a window. max_bytes = 0: no windows.
  PullWindows(const ConnectionMap& connections, int64_t min_bytes, int64_t max_bytes);

  // Opens the window of a pull on this connection.
  //   anew: no bytes of its answer count so far.
  //   limited: the answer may have a window.
  // Returns the window in bytes, or 0 for no limit.
  int64_t open(int server, int connection, bool anew, bool limited);

  // Counts weights that have arrived on this connection.
  //   all_here: the server's answer is complete.
  // Returns the bytes of this pull that must be reported to the server now, if any.
  std::optional<int64_t> count(int server, int connection, int64_t bytes, bool all_here,
                               int64_t now_ms);

  // Bytes of the running pull that have arrived.
  int64_t received(int server, int connection) const {
    return connections_[static_cast<size_t>(server)][static_cast<size_t>(connection)].received;
  }

 private:
  struct Connection {
    int64_t received = 0;  // bytes of the running pull's weights
    int64_t reported = 0;  // bytes that were reported to the server
    int64_t window = 0;    // bytes
    int64_t first_ms = 0;  // time and length of the answer's first message
    int64_t first_bytes = 0;
    double bytes_per_ms = 0;  // best of the last pulls; 0 if unknown
  };
  int64_t window_of(const Connection& connection) const;
  static void measure(std::vector<Connection>& connections, int64_t now_ms);

  const int64_t min_bytes_;
  const int64_t max_bytes_;
  std::vector<std::vector<Connection>> connections_;  // by server
};

}  // namespace pushpull
