// The pull in progress: asks each server, on each connection, for the weights that the schedule
// needs, processes the answers, repeats overdue pulls, and resends pushes that the answers show to
// be lost. Does no I/O and does not depend on the strategy: messages go to the caller's list, and
// the caller passes the time. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/net/message.h"
#include "worker/exchange/pull_pace.h"
#include "worker/exchange/push_delivery.h"
#include "worker/exchange/schedule.h"
#include "worker/exchange/to_server.h"
#include "worker/exchange/weights_buffer.h"

namespace pushpull {

// Tracks which servers' weights this worker reads in the server's own memory, on the host or on a
// shared device. A server with weights that are not contiguous is asked for copies from then on.
class InPlaceWeights {
 public:
  // possible: servers hand out plain weights, not encoded ones.
  InPlaceWeights(int servers, bool possible);

  // Sets whether the server's memory can be shared from now on.
  //   on_device: also the memory of the device that this worker computes on.
  void share(int server, bool shared, bool on_device);

  // Decides how the next pull asks the server.
  //   newest: the pull takes any version.
  //   averages: of the weights, which are in no memory that servers share.
  void ask(int server, bool newest, bool averages = false);
  // Decides how a repetition of the pull asks: as the pull did, or not in place if memory is no longer shared.
  void ask_again(int server);
  // Return the last decision.
  bool asked(int server) const { return at(server).asked; }
  bool asked_on_device(int server) const { return at(server).asked_on_device; }
  bool shares(int server) const { return at(server).in_place; }
  // Returns true if some server may keep weights for this worker until its next pull.
  bool any() const;

  // Records that the weights of the last pull are not contiguous.
  void set_not_contiguous(int server, bool newest);

 private:
  struct Server {
    bool in_place = false;
    bool on_device = false;
    bool asked = false;
    bool asked_on_device = false;
  };
  const Server& at(int server) const { return servers_[static_cast<size_t>(server)]; }

  const bool possible_;
  std::vector<Server> servers_;
  bool newest_not_contiguous_ = false;
};

class Pull {
 public:
  struct Options {
    int64_t min_window_bytes = 0;
    int64_t max_window_bytes = 0;  // 0 = no limit
    int64_t timeout_ms = 10'000;   // longest silence of a server
    bool may_be_in_place = true;   // servers hand out plain weights
    bool averages = false;         // pulls of a barrier's weights get averages
  };
  // The parts that a pull works with; all borrowed.
  struct Parts {
    const ConnectionMap& connections;
    const Schedule& schedule;  // for the newest lease
    WeightsBuffer& weights;
    PushDelivery& delivery;
    std::vector<ToServer>& outgoing;
  };
  Pull(SenderId sender, const Options& options, const Parts& parts);

  // See PushPull::share_memory.
  void share_memory(int server, bool shared, bool on_device);
  bool shares_memory(int server) const { return in_place_.shares(server); }
  bool any_in_place() const { return in_place_.any(); }
  // Returns whether the pull that runs may start anew, with its weights in other memory: those that it asks for in
  // place may not be contiguous.
  bool may_start_anew() const { return asks_in_place_; }

  // Starts a pull; an earlier one ends.
  void start(const PullAim& aim, int64_t now_ms);
  // Ends the pull, complete or not.
  void end();
  // Restarts the time of silence of all servers.
  void restart(int64_t now_ms);
  // Sets the lost servers that have no replacement yet. Their silence is no error.
  void set_absent(std::vector<int> servers) { absent_ = std::move(servers); }
  // Records that another process has taken this server's place, and sends it the pull if one needs
  // it.
  void start_over(int server, int64_t now_ms);

  // Handle a message of an existing server. Both may end the pull; the schedule then decides again.
  // on_weights returns true if missing slices have arrived.
  bool on_weights(int server, const Message& message, int64_t now_ms);
  void on_status(int server, const wire::Status& status, int64_t now_ms);
  // Repeats overdue pulls. Throws Error(kUnreachable), see PushPull::on_tick.
  void on_tick(int64_t now_ms);

  bool running() const { return running_; }
  bool brings_weights() const { return running_ && !aim_.leases; }
  const PullAim& aim() const { return aim_; }
  // Returns true if all weights are here and all pushes have arrived.
  bool is_complete() const;
  const PullState& state() const { return state_; }
  // Describes the weights or the lease that the pull waits for, for messages.
  std::string waiting_for() const;
  // Refusals by servers since the last call, for the log.
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
  const bool averages_;  // Options::averages
  InPlaceWeights in_place_;
  PullState state_;
  PullWindows windows_;
  PullRepeats repeats_;

  PullAim aim_;  // of the running or last pull
  std::vector<int> absent_;
  int64_t number_ = 0;
  bool running_ = false;
  bool asks_in_place_ = false;  // some server
};

}  // namespace pushpull
