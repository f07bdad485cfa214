// The members of the job, when each was last heard, and which have fallen silent. Part of the
// coordinator's state machine; time comes in as an argument. One thread.
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

// Address of a server's data port, and the name that the port proves (common/keys/data_proof.h).
struct DataPort {
  std::string endpoint;
  std::string listener;

  bool operator==(const DataPort&) const = default;
};

struct MemberInfo {
  wire::Role role = wire::ROLE_UNSET;
  int rank = -1;  // -1: a spare worker
  uint64_t incarnation = 0;
  std::string host = {};
  int64_t pid = 0;
  std::string data_endpoint = {};
  std::string device = {};         // that it computes on, or keeps weights on
  std::string peer_endpoint = {};  // all-reduce: where other workers reach this one
  PeerId peer = {};                // empty: the server in the coordinator's own process
  bool declared = false;
  int64_t last_heard_ms = 0;
  int64_t gone_since_ms = -1;  // the connection was closed; -1: open
  int64_t state_version = -1;  // newest that the member has taken in
  int64_t told_ms = -1;        // it said that it was told to end; -1: it was not
  bool let_go = false;         // it may
  bool unheard = false;        // nothing has come from it for a while
  wire::Stats stats = {};

  // "worker 1 (host, pid 123)"; a spare is "worker (host, pid 123)".
  std::string name() const;
  // A server's data port.
  DataPort data_port() const;
};

// A member that is none any more.
struct FormerMember {
  MemberInfo member;
  std::string reason;
  int64_t at_ms = 0;
};

class Membership {
 public:
  static constexpr size_t kMostFormer = 256;

  explicit Membership(double heartbeat_timeout_s);

  MemberInfo& add(const MemberInfo& member);
  // It was never more than a guest, or the job is over.
  void remove(uint64_t incarnation) { members_.erase(incarnation); }
  // It has left, or is lost, before the job was over.
  void remove(uint64_t incarnation, const std::string& reason, int64_t now_ms);
  // The newest ones of these, the latest last; and how many there were before them.
  const std::deque<FormerMember>& former() const { return former_; }
  int64_t forgotten() const { return forgotten_; }
  // Null: nobody.
  MemberInfo* find(uint64_t incarnation);
  const MemberInfo* find(uint64_t incarnation) const;
  MemberInfo* find_peer(const PeerId& peer);
  const MemberInfo* find_rank(wire::Role role, int rank) const;
  std::map<uint64_t, MemberInfo>& all() { return members_; }
  const std::map<uint64_t, MemberInfo>& all() const { return members_; }

  void heard(MemberInfo& member, const PeerId& peer, int64_t now_ms);
  // Sending failed because the connection is closed.
  void gone(const PeerId& peer, int64_t now_ms);

  struct Loss {
    uint64_t incarnation = 0;
    std::string reason;  // "no heartbeat for 5.2 s", "its connection closed"
  };
  // Notes who has not been heard for a while, though it does not count as lost. True: somebody new is
  // among them, or is not any more.
  bool note_unheard(int64_t now_ms);
  // Members that count as lost now.
  std::vector<Loss> lost(int64_t now_ms) const;

  int count(wire::Role role) const;
  // The lowest rank below `places` that nobody of this role has; -1: none is free.
  int free_rank(wire::Role role, int places) const;

 private:
  int64_t timeout_ms_;
  int64_t unheard_ms_;
  int64_t closed_grace_ms_;  // a living peer reconnects within this
  std::map<uint64_t, MemberInfo> members_;
  std::deque<FormerMember> former_;
  int64_t forgotten_ = 0;
};

// "1.5" for 1500.
std::string seconds_text(int64_t ms);

}  // namespace pushpull
