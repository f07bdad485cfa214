// The actions that parts of the coordinator ask for: messages to send, notices for users, and State
// broadcasts. Each part adds actions; the coordinator's caller takes them. Not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/net/message.h"
#include "ps/members/membership.h"
#include "ps/server/outgoing.h"

namespace pushpull {

class Actions {
 public:
  void send(const PeerId& to, Message message) { messages_.push_back({to, std::move(message)}); }
  void send_to_servers(const Membership& members, const Message& message);
  // Sends a refusal with its reason. The peer exits with this code.
  void refuse(const PeerId& peer, ErrorCode code, const std::string& text);
  // Adds a line for users.
  void notice(std::string line) { notices_.push_back(std::move(line)); }

  // Notes that the coordinator has given up a member while the job goes on.
  void gave_up(const MemberInfo& member) { given_up_.push_back(member); }
  std::vector<MemberInfo> take_given_up() { return std::exchange(given_up_, {}); }
  // Notes that training has lost a member with a place in it.
  void lost(const MemberInfo& member) { lost_.push_back(member.place()); }
  std::vector<std::string> take_lost() { return std::exchange(lost_, {}); }

  // Notes a change of the state, so that all members receive it. Members ignore older versions.
  void state_changed() {
    ++state_version_;
    state_wanted_ = true;
  }
  // Sends the unchanged state to a member that does not have it yet.
  void repeat_state(uint64_t incarnation) { lacking_.insert(incarnation); }
  int64_t state_version() const { return state_version_; }
  // Returns the members to send the unchanged state to, once.
  std::set<uint64_t> take_lacking() { return std::exchange(lacking_, {}); }
  // Returns true once after the state has changed: it must go out to all members now.
  bool take_state_wanted() { return std::exchange(state_wanted_, false); }

  std::vector<Outgoing> take_messages() { return std::exchange(messages_, {}); }
  std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }

 private:
  std::vector<Outgoing> messages_;
  std::vector<std::string> notices_;
  std::vector<MemberInfo> given_up_;
  std::vector<std::string> lost_;
  std::set<uint64_t> lacking_;
  int64_t state_version_ = 1;
  bool state_wanted_ = true;
};

// Returns "1 server", "2 servers".
//   plural: if it is not `noun` with an s.
std::string counted(int64_t count, const std::string& noun, const std::string& plural = "");

}  // namespace pushpull
