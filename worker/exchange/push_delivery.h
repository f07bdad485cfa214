// Pushes from their first part until the servers need them no more: cut into messages on the
// connections, kept until they are acknowledged, sent again where they are lost, and kept on where
// a server may still read them in our memory, or where a process in a lost server's place would need
// them. A pull can ride on a push's message. Knows no time
// and no socket: what is to be sent goes to a list of the caller. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/net/message.h"
#include "worker/exchange/connection_map.h"
#include "worker/exchange/to_server.h"

namespace pushpull {

class PushDelivery {
 public:
  struct Options {
    size_t flush_bytes = size_t{1} << 20;  // a push's message goes out when it holds so much
    bool acknowledge = false;              // servers answer as soon as a push is complete
    // Servers acknowledge what they have applied; otherwise they may still read it then.
    bool acknowledged_is_applied = true;
    // Pushes to all servers but the first are kept until `copied`.
    bool keep = false;
  };
  // The fields that all messages of a push have.
  struct Head {
    int64_t step = 0;
    Range range;         // micro-batches
    int64_t steps = 1;   // that it covers
    int parts_each = 1;  // of every slice
    std::vector<int64_t> read_versions;
    wire::Grant grant = {};  // of its share or lease
  };

  // outgoing: takes the messages; borrowed, as the map is.
  PushDelivery(SenderId sender, const ConnectionMap& connections, Options options,
               std::vector<ToServer>& outgoing);

  // The server may read pushes where they lie, from here on.
  void shares_memory(int server) { at(server).reads_memory = true; }

  // ---- one push ----
  void begin(Head head);
  // The slice's message is full: flush it before the next part of the slice is added. The last
  // part waits for `end`, so that the last message is never empty.
  //   in_place: the message only says where the part lies.
  bool is_full(int slice, bool in_place) const;
  void add_part(int slice, Range node, Payload payload);
  // Sends what has been added on this connection.
  void flush(int server, int connection);
  // No more parts come. The last messages go out with flush_all.
  //   losses, data_hash, bad: for server 0. squares: for all.
  void end(std::span<const float> losses, double squares, const std::string& data_hash,
           std::span<const wire::BadGradient> bad = {});
  void flush_all();
  // Between `begin` and `end`.
  bool is_running() const { return running_; }
  const Head& head() const { return head_; }

  // A pull that can go out with a message of the push on this connection does so. False: it
  // cannot.
  bool take_along(int server, int connection, const wire::Pull& pull);

  // ---- until the servers need them no more ----
  // The server has all pushes up to this number.
  void acknowledge(int server, int64_t through);
  // Every server has applied all steps below `version`.
  void applied(int64_t version);
  // All servers have all pushes, as far as they have said.
  bool arrived() const;
  bool arrived(int server) const { return at(server).unacknowledged.empty(); }
  void send_again(int server);

  // ---- a server in a lost one's place ----
  // The servers' weights of this step are kept elsewhere, with all steps below it.
  void copied(int64_t step);
  // Another process has taken the server's place: it is sent all pushes that are kept, some at a time.
  // Not between `begin` and `end`.
  void start_over(int server);
  // It has not got all of these yet.
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
    std::deque<Sent> unread;    // arrived, and may still be read where they lie
    std::deque<Sent> kept;      // arrived, and not copied yet
    int64_t first = 0;          // push that a process in a lost one's place was sent first; 0: all
    int64_t sent_through = 0;   // ... and the newest of those that were kept for it
    int64_t kept_through = 0;   // the last of them: what is newer goes out as it is made
    bool reads_memory = false;  // shares memory with us, or did once
    std::vector<Pending> pending;  // by connection
  };
  Server& at(int server) { return servers_[static_cast<size_t>(server)]; }
  const Server& at(int server) const { return servers_[static_cast<size_t>(server)]; }
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
