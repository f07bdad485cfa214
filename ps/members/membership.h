// The members of the job: when each was last heard from, and which have gone silent. Part of the
// coordinator's state machine. The caller passes the time. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/net/message.h"

namespace pushpull {

// Address of a server's data port, and the name that the port proves (common/net/data_proof.h).
struct DataPort {
  std::string endpoint;
  std::string listener;

  bool operator==(const DataPort&) const = default;
};

struct MemberInfo {
  wire::Role role = wire::ROLE_UNSET;
  int rank = -1;  // -1 for a spare worker
  int wanted_rank =
      -1;  // of a worker: told to it when it said Hello, and its rank if that is free then
  uint64_t incarnation = 0;
  std::string host = {};
  int64_t pid = 0;
  std::string data_endpoint = {};
  std::string device = {};          // computes, or keeps weights, on this device
  std::string peer_endpoint = {};   // all-reduce: other workers connect to this address
  std::string group_endpoint = {};  // stages: other workers of its group connect to this address
  PeerId peer = {};                 // empty for the server in the coordinator's process
  int stage = -1;                   // that a worker has declared; -1: the whole model
  int port = 0;                     // of its program, see wire::OwnStage
  bool launched = false;            // by the program that has started the coordinator
  bool declared = false;
  int64_t last_heard_ms = 0;
  int64_t disconnected_ms = -1;  // time its connection closed; -1 while it is open
  int64_t state_version = -1;    // newest State that the member has received
  int64_t end_request_ms = -1;   // time it reported a request to end; -1 if it has not
  bool may_leave = false;        // a member with such a request may leave
  bool unheard = false;          // silent, but not yet lost
  wire::Stats stats = {};

  // Returns "worker 1"; a spare is "worker".
  std::string place() const;
  // Returns "worker 1 (host, pid 123)"; a spare is "worker (host, pid 123)".
  std::string name() const;
  // A server's data port.
  DataPort data_port() const;
};

// A member that left or was lost.
struct FormerMember {
  MemberInfo member;
  std::string reason;
  int64_t at_ms = 0;
};

class Membership {
 public:
  static constexpr size_t kMaxFormer = 256;

  explicit Membership(double heartbeat_timeout_s);

  MemberInfo& add(const MemberInfo& member);
  // Removes a member that never declared itself, or that leaves after the job is over.
  void remove(uint64_t incarnation) { members_.erase(incarnation); }
  // Removes a member that leaves or is lost before the job is over, and keeps it in `former`.
  void remove(uint64_t incarnation, const std::string& reason, int64_t now_ms);
  // Keeps the former members of an earlier term, too. Call before members join.
  void take_former(const Membership& earlier) {
    former_ = earlier.former_;
    forgotten_ = earlier.forgotten_;
  }
  // Former members, newest last, at most kMaxFormer; `forgotten` counts older ones that were
  // dropped.
  const std::deque<FormerMember>& former() const { return former_; }
  int64_t forgotten() const { return forgotten_; }
  // Each returns null if there is no such member.
  MemberInfo* find(uint64_t incarnation);
  const MemberInfo* find(uint64_t incarnation) const;
  MemberInfo* find_peer(const PeerId& peer);
  const MemberInfo* find_rank(wire::Role role, int rank) const;
  std::map<uint64_t, MemberInfo>& all() { return members_; }
  const std::map<uint64_t, MemberInfo>& all() const { return members_; }

  void heard(MemberInfo& member, const PeerId& peer, int64_t now_ms);
  // Notes that sending to the peer failed because its connection is closed.
  void on_disconnect(const PeerId& peer, int64_t now_ms);

  struct Loss {
    uint64_t incarnation = 0;
    std::string reason;  // "no heartbeat for 5.2 s", "its connection closed"
  };
  // Updates `unheard` of all members. Returns true if it changed for any of them.
  bool note_unheard(int64_t now_ms);
  // Returns the members that count as lost at now_ms.
  std::vector<Loss> lost(int64_t now_ms) const;

  int count(wire::Role role) const;
  // Returns the lowest rank below `places` that no member of this role has, or -1.
  int free_rank(wire::Role role, int places) const;

 private:
  int64_t timeout_ms_;
  int64_t unheard_ms_;
  int64_t closed_grace_ms_;  // a live peer reconnects within this time
  std::map<uint64_t, MemberInfo> members_;
  std::deque<FormerMember> former_;
  int64_t forgotten_ = 0;
};

// Returns seconds with one digit: "1.5" for 1500.
std::string seconds_text(int64_t ms);

}  // namespace pushpull
