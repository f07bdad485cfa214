#include "ps/members/membership.h"

#include <algorithm>
#include <utility>

#include "common/net/data_proof.h"
#include "common/net/intervals.h"

namespace pushpull {

std::string seconds_text(int64_t ms) {
  return std::to_string(ms / 1000) + "." + std::to_string(ms % 1000 / 100);
}

DataPort MemberInfo::data_port() const { return {data_endpoint, listener_name(incarnation)}; }

std::string MemberInfo::place() const {
  const std::string what = role == wire::ROLE_SERVER ? "server" : "worker";
  return what + (rank < 0 ? "" : " " + std::to_string(rank));
}

std::string MemberInfo::name() const {
  return place() + " (" + host + ", pid " + std::to_string(pid) + ")";
}

Membership::Membership(double heartbeat_timeout_s)
    : timeout_ms_(static_cast<int64_t>(heartbeat_timeout_s * 1000)),
      unheard_ms_(unheard_ms(heartbeat_timeout_s)),
      closed_grace_ms_(closed_grace_ms(heartbeat_timeout_s)) {}

MemberInfo& Membership::add(const MemberInfo& member) {
  // A member that was dropped before the start and says Hello again has not left.
  std::erase_if(former_, [&](const FormerMember& former) {
    return former.member.incarnation == member.incarnation;
  });
  return members_[member.incarnation] = member;
}

void Membership::remove(uint64_t incarnation, const std::string& reason, int64_t now_ms) {
  const auto found = members_.find(incarnation);
  if (found == members_.end()) return;
  former_.push_back({std::move(found->second), reason, now_ms});
  members_.erase(found);
  if (former_.size() <= kMaxFormer) return;
  former_.pop_front();
  ++forgotten_;
}

MemberInfo* Membership::find(uint64_t incarnation) {
  const auto found = members_.find(incarnation);
  return found == members_.end() ? nullptr : &found->second;
}

const MemberInfo* Membership::find(uint64_t incarnation) const {
  const auto found = members_.find(incarnation);
  return found == members_.end() ? nullptr : &found->second;
}

MemberInfo* Membership::find_peer(const PeerId& peer) {
  for (auto& [incarnation, member] : members_) {
    if (member.peer == peer) return &member;
  }
  return nullptr;
}

const MemberInfo* Membership::find_rank(wire::Role role, int rank) const {
  for (const auto& [incarnation, member] : members_) {
    if (member.role == role && member.rank == rank) return &member;
  }
  return nullptr;
}

void Membership::heard(MemberInfo& member, const PeerId& peer, int64_t now_ms) {
  member.peer = peer;
  member.last_heard_ms = now_ms;
  member.disconnected_ms = -1;
}

void Membership::on_disconnect(const PeerId& peer, int64_t now_ms) {
  MemberInfo* member = find_peer(peer);
  if (member != nullptr && member->disconnected_ms < 0) member->disconnected_ms = now_ms;
}

bool Membership::note_unheard(int64_t now_ms) {
  bool changed = false;
  for (auto& [incarnation, member] : members_) {
    const bool unheard = !member.peer.empty() && now_ms - member.last_heard_ms > unheard_ms_;
    changed |= std::exchange(member.unheard, unheard) != unheard;
  }
  return changed;
}

std::vector<Membership::Loss> Membership::lost(int64_t now_ms) const {
  std::vector<Loss> out;
  for (const auto& [incarnation, member] : members_) {
    if (member.peer.empty()) continue;
    const int64_t silent = now_ms - member.last_heard_ms;
    if (silent > timeout_ms_) {
      out.push_back({incarnation, "no heartbeat for " + seconds_text(silent) + " s"});
    } else if (member.disconnected_ms >= 0 && now_ms - member.disconnected_ms > closed_grace_ms_) {
      out.push_back({incarnation, "its connection closed " +
                                      seconds_text(now_ms - member.disconnected_ms) + " s ago"});
    }
  }
  return out;
}

int Membership::count(wire::Role role) const {
  return static_cast<int>(std::count_if(members_.begin(), members_.end(), [&](const auto& entry) {
    return entry.second.role == role;
  }));
}

int Membership::free_rank(wire::Role role, int places) const {
  std::vector<bool> taken(static_cast<size_t>(places));
  for (const auto& [incarnation, member] : members_) {
    if (member.role != role || member.rank < 0 || member.rank >= places) continue;
    taken[static_cast<size_t>(member.rank)] = true;
  }
  const auto found = std::find(taken.begin(), taken.end(), false);
  return found == taken.end() ? -1 : static_cast<int>(found - taken.begin());
}

}  // namespace pushpull
