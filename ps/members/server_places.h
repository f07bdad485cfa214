// The places of the servers in a running term, and which process takes a lost server's place. With
// recovery = peers another process continues from the copy of its weights, and workers resend their
// pushes since then. This needs every push since the copy: if a worker that is gone has pushed some
// of them, a new term begins instead. Part of the coordinator's state machine. Not thread-safe.
//
// Seeding a server from its peers: docs/faults.md. Each place has a life, a number that grows with
// each replacement, so that workers reconnect.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/net/message.h"
#include "ps/members/membership.h"

namespace pushpull {

struct Job;

class ServerPlaces {
 public:
  //   job: borrowed. members: at the start, with all servers.
  ServerPlaces(const Job& job, int servers, const Membership& members);

  // ---- events ----
  // Notes that a copy of all servers but server 0 is complete.
  void copied(int64_t step, int64_t updates);
  // Notes the loss of a worker that had work; pushes of steps up to `floor` may be from it. Returns
  // false if a server still lacks some of them and can never get them.
  bool lost_worker(int64_t floor);
  // Notes the loss of a server. Returns false if it cannot be replaced within the term: workers
  // then wait for the next term.
  //   floor: the step that training has reached.
  bool lost_server(int64_t now_ms, int rank, int64_t floor);
  // Notes that the server with this incarnation has loaded the copy.
  void loaded(uint64_t incarnation);

  // ---- results ----
  // Returns the rank of the next server that has joined in an empty place and needs its weights,
  // once.
  std::optional<int> take_joined(const Membership& members);
  // Returns an error text if a place has been empty for longer than replacement-timeout, else "".
  std::string overdue(int64_t now_ms) const;

  // ---- queries ----
  int64_t copied_step() const { return copied_step_; }  // -1 if there is none
  // Returns how many replacements have loaded their weights.
  int64_t recovered() const { return recovered_; }
  // The data port of the server with this rank, or of the lost one until its replacement is loaded.
  const DataPort& port(int rank) const { return places_[static_cast<size_t>(rank)].port; }
  int servers() const { return static_cast<int>(places_.size()); }
  // Returns true if the server has its weights or is loading them: it may receive the State of
  // training.
  bool is_settled(const MemberInfo& server) const;
  void add_to_state(wire::State* state) const;
  // Adds the step at which a replacement server begins. Does nothing for other servers.
  void add_start_to(wire::State* state, const MemberInfo& server) const;

 private:
  struct Place {
    DataPort port;
    int32_t life = 0;
    bool absent = false;    // lost, until a replacement has its weights
    bool gone = false;      // lost for this term
    int64_t since_ms = 0;   // time of the loss
    uint64_t newcomer = 0;  // incarnation of the replacement; 0 if there is none yet
    DataPort new_port;      // data port of the newcomer
    int64_t from_step = 0;  // step at which the newcomer began
    int64_t from_updates = 0;
  };
  bool any_absent() const;

  const Job& job_;
  std::vector<Place> places_;  // by rank
  int64_t copied_step_ = -1;
  int64_t copied_updates_ = 0;
  int64_t lost_pushes_ = -1;  // last step that a lost worker may have pushed
  int64_t replayed_ = -1;     // last step with pushes that a server may need again
  int64_t recovered_ = 0;
};

}  // namespace pushpull
