// Delivers pushes: cuts them into messages on the connections, keeps them until they are
// acknowledged, and sends lost ones again. A push is kept longer if a server may still read it in
// the worker's memory, or if a replacement server may need it. A pull can ride on a push's message.
// Does no I/O and reads no clock: messages go to the caller's list. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/net/message.h"
#include "worker/exchange/to_server.h"

namespace pushpull {

class PushDelivery {
 public:
  struct Options {
    size_t flush_bytes = size_t{1} << 20;  // size at which a message is sent
    bool acknowledge = false;              // servers acknowledge a push when it is complete
    // An acknowledged push has been applied. Otherwise the server may still read it.
    bool acknowledged_is_applied = true;
    // Pushes to all servers except server 0 are kept until `copied`.
    bool keep = false;
    // Pushes have no parts: they only report to server 0.
    bool reports = false;
  };
  // The fields of all messages of a push.
  struct Head {
    int64_t step = 0;
    Range range;         // micro-batches
    int64_t steps = 1;   // covered by the push
    int parts_each = 1;  // of each slice
    std::vector<int64_t> read_versions;
    wire::Grant grant = {};  // for its share or lease
  };

  // outgoing: receives the messages. Borrows it and the map.
  PushDelivery(SenderId sender, const ConnectionMap& connections, Options options,
               std::vector<ToServer>& outgoing);

  // Records that the server may read pushes in the worker's memory from now on.
  void shares_memory(int server) { at(server).reads_memory = true; }

  // ---- one push ----
  void begin(Head head);
  // Returns true if the slice's message is full; flush it before the next part of the slice. The
  // last part waits for `end`, so the last message is never empty.
  //   in_place: the message carries references to parts.
  bool is_full(int slice, bool in_place) const;
  void add_part(int slice, Range node, Payload payload);
  // Sends the message of this connection.
  void flush(int server, int connection);
  // Ends the push; flush_all then sends the last messages.
  //   losses, data_hash, bad: for server 0. squares, learning_rate: for all servers.
  void end(std::span<const float> losses, double squares, const std::string& data_hash,
           std::span<const wire::BadGradient> bad = {}, std::optional<double> learning_rate = {});
  void flush_all();
  // Returns true between `begin` and `end`.
  bool is_running() const { return running_; }
  const Head& head() const { return head_; }

  // Puts the pull on a message of the push on this connection. Returns false if there is none.
  bool take_along(int server, int connection, const wire::Pull& pull);

  // ---- acknowledgements ----
  // Records that the server has all pushes up to this number.
  void acknowledge(int server, int64_t through);
  // Records that every server has applied all steps below `version`.
  void applied(int64_t version);
  // Returns the most pushes that a server has not acknowledged.
  int64_t unacknowledged() const;
  bool arrived(int server) const { return at(server).unacknowledged.empty(); }
  void send_again(int server);

  // ---- replacement of a lost server ----
  // Drops kept pushes of steps below this one: copies of the servers' weights contain them.
  void copied(int64_t step);
  // Sends all kept pushes to the process that has taken the server's place, a few at a time. Must
  // not be called between `begin` and `end`.
  void start_over(int server);
  // Returns true while that process lacks some of them.
  bool catches_up(int server) const { return at(server).first > 0 && !arrived(server); }

 private:
  struct Sent {
    int64_t number = 0;
    int64_t step = 0;
    std::vector<ToServer> messages;
  };
  struct Pending {
    Message message;  // parts of the running push that are not sent yet
    size_t bytes = 0;
    std::optional<wire::Pull> pull;  // rides on it
  };
  struct Server {
    std::deque<Sent> unacknowledged;
    std::deque<Sent> unread;       // arrived; the server may still read them in place
    std::deque<Sent> kept;         // arrived; not in a copy yet
    int64_t first = 0;             // first push for the replacement; 0 = all pushes
    int64_t sent_through = 0;      // newest kept push that was sent to it
    int64_t kept_through = 0;      // newest kept push; newer ones are sent at once
    bool reads_memory = false;     // shares memory with the worker, or has done so
    std::vector<Pending> pending;  // by connection
  };
  Server& at(int server) { return servers_[static_cast<size_t>(server)]; }
  const Server& at(int server) const { return servers_[static_cast<size_t>(server)]; }
  // Returns true if pushes have messages to this server.
  bool gets_pushes(int server) const {
    return options_.reports ? server == 0 : connections_.counts_pushes(server);
  }
  Pending& pending_of(int slice);
  const Pending& pending_of(int slice) const;
  void open(Pending& pending, int server);
  void send_kept(int server);
  void send_messages(const Sent& push);

  const SenderId sender_;
  const ConnectionMap& connections_;
  const Options options_;
  std::vector<ToServer>& outgoing_;
  std::vector<Server> servers_;
  int64_t next_number_ = 1;
  int64_t number_ = 0;  // of the running or last push
  int64_t copied_step_ = 0;
  Head head_;
  bool running_ = false;
};

}  // namespace pushpull
