// The places of the servers in a running term, and who may take a lost server's: with recovery =
// peers another process goes on from the copy of its weights, and workers send it again what they have
// pushed since. That needs every push since the copy: where a worker that is gone has pushed some of
// them, a new term begins instead. Part of the coordinator's state machine; one thread.
//
// Seeding a server from its peers: docs/faults.md. Each place has a life: one more for each process
// that has taken another's place, so that workers connect anew.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/job/job.h"
#include "common/net/message.h"
#include "ps/members/membership.h"

namespace pushpull {

class ServerPlaces {
 public:
  // job: borrowed. members: at the start, when all servers are there.
  ServerPlaces(const Job& job, int servers, const Membership& members);

  // ---- events ----
  // A copy of all servers but the first is here.
  void copied(int64_t step, int64_t updates);
  // A worker that had work is gone; pushes of steps up to `floor` may be its. False: a server has not
  // got all of them yet, and never will.
  bool lost_worker(int64_t floor);
  // False: nobody can take this server's place. floor: the step that training has come to.
  bool lost_server(int64_t now_ms, int rank, int64_t floor);
  // The server with this incarnation has the copy.
  void loaded(uint64_t incarnation);

  // ---- what follows ----
  // The next server that has come to an empty place and lacks its weights: its rank, once.
  std::optional<int> take_joined(const Membership& members);
  // Servers that have gone on since the last call.
  int64_t take_recovered() { return std::exchange(recovered_, 0); }
  // Why the job cannot go on: a place has been empty for too long. "": it can.
  std::string overdue(int64_t now_ms) const;

  // ---- queries ----
  int64_t copied_step() const { return copied_step_; }  // -1: none
  // Where workers reach the server of this rank, or reached the one that is lost.
  const DataPort& port(int rank) const { return places_[static_cast<size_t>(rank)].port; }
  int servers() const { return static_cast<int>(places_.size()); }
  // This server has its weights, or is being given them: it may be told that training goes on.
  bool is_settled(const MemberInfo& server) const;
  void add_to_state(wire::State* state) const;
  // For a server: where it begins, if in a lost one's place.
  void add_start_to(wire::State* state, const MemberInfo& server) const;

 private:
  struct Place {
    DataPort port;
    int32_t life = 0;
    bool absent = false;
    int64_t since_ms = 0;   // absent
    uint64_t newcomer = 0;  // incarnation of the server that the copy is loaded into; 0 if none
    DataPort new_port;      // of the newcomer
    int64_t from_step = 0;  // where the newcomer began
    int64_t from_updates = 0;
  };
  bool anybody_absent() const;

  const Job& job_;
  std::vector<Place> places_;  // by rank
  int64_t copied_step_ = -1;
  int64_t copied_updates_ = 0;
  int64_t lost_pushes_ = -1;  // the last step that a worker which is gone may have pushed
  int64_t replayed_ = -1;     // the last step that a server may have to be sent again
  int64_t recovered_ = 0;
};

}  // namespace pushpull
