// The pull in progress: asks the servers, on each connection, for the weights that the schedule
// needs, takes in what they answer, asks again for what does not come, and has pushes sent again
// that the answers show to be lost. Knows no strategy and no socket: what is to be sent goes to a
// list of the caller, times come from there. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/net/message.h"
#include "worker/exchange/in_place_weights.h"
#include "worker/exchange/pull_progress.h"
#include "worker/exchange/pull_repeats.h"
#include "worker/exchange/pull_windows.h"
#include "worker/exchange/push_delivery.h"
#include "worker/exchange/to_server.h"
#include "worker/schedule/schedule.h"

namespace pushpull {

class PullRequest {
 public:
  struct Options {
    int64_t least_window_bytes = 0;
    int64_t most_window_bytes = 0;  // 0: no limit
    int64_t timeout_ms = 10'000;    // of a server's silence
    bool may_lie_in_place = true;   // servers hand out weights as they are, not encoded
  };
  // The parts that it works with; all borrowed.
  struct Parts {
    const ConnectionMap& connections;
    const Schedule& schedule;  // asked for the newest lease
    WeightsBuffer& weights;
    PushDelivery& delivery;
    std::vector<ToServer>& outgoing;
  };
  PullRequest(SenderId sender, const Options& options, const Parts& parts);

  // The same as PushPull::share_memory.
  void share_memory(int server, bool shared, bool on_device);
  // The server's weights are read where it has written them, as far as is known.
  bool shares_memory(int server) const { return in_place_.shares(server); }
  // Some server may keep weights for this worker until the next pull.
  bool any_in_place() const { return in_place_.any(); }

  // A new pull takes the place of the one before.
  void start(const PullAim& aim, int64_t now_ms);
  // It is over, complete or not.
  void end();
  // It is waited for only from now on.
  void restart(int64_t now_ms);
  // These servers are lost, and nobody has taken their place: their silence means nothing.
  void set_absent(std::vector<int> servers) { absent_ = std::move(servers); }
  // Another process is in this server's place, and knows nothing of what it was asked.
  void start_over(int server, int64_t now_ms);

  // Weights, or a word, of a server that exists. May end the pull, for which there is another way
  // then: the schedule is to be asked anew.
  //   has_lease: after what the status has brought.
  // True: slices have come that were missing.
  bool on_weights(int server, const Message& message, int64_t now_ms);
  void on_status(int server, const wire::Status& status, bool has_lease, int64_t now_ms);
  // Asks again where an answer is overdue. Throws Error(kUnreachable), see PushPull::on_tick.
  void on_tick(int64_t now_ms);

  bool running() const { return running_; }
  bool brings_weights() const { return running_ && !aim_.leases; }
  const PullAim& aim() const { return aim_; }
  // All weights are here, and all pushes have arrived.
  bool is_complete() const;
  const PullProgress& progress() const { return progress_; }
  // Says in words what it waits for.
  std::string waiting_for() const;
  // For people: messages of this worker that servers have dropped, and why.
  std::vector<std::string> take_warnings() { return std::exchange(warnings_, {}); }

 private:
  void repeat_kept(int64_t now_ms);
  std::string silence_text(int server, int64_t silent_ms) const;
  bool is_exact() const { return aim_.versions == PullAim::kExact; }
  int connections_asked(int server) const;
  bool settled(int server) const;
  void send(int server, bool repeat, int64_t now_ms);
  wire::Pull pull_on(int server, int connection, bool repeat);
  void count_received(int server, const Message& message, int64_t now_ms);
  void check_pushes(int server, bool asked_again, int64_t now_ms);
  void send_pushes_again(int server);
  void end_if_past(int server);
  void on_refusal(int server, const std::string& text);

  const SenderId sender_;
  const ConnectionMap& connections_;
  const Schedule& schedule_;
  PushDelivery& delivery_;
  std::vector<ToServer>& outgoing_;
  std::vector<std::string> warnings_;
  InPlaceWeights in_place_;
  PullProgress progress_;
  PullWindows windows_;
  PullRepeats repeats_;

  PullAim aim_;  // of the running or last pull
  std::vector<int> absent_;
  int64_t number_ = 0;
  bool running_ = false;
};

}  // namespace pushpull
