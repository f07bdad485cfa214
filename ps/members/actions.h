// The actions that parts of the coordinator ask for: messages to send, lines for people, and a
// state that members must hear anew. Each part adds to them; the coordinator's caller takes them.
// One thread.
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
  // Tells a process that it cannot take part, and why. It ends with this code.
  void refuse(const PeerId& peer, ErrorCode code, const std::string& text);
  // A line for people.
  void notice(std::string line) { notices_.push_back(std::move(line)); }

  // Something in the state has changed: members take newer versions only.
  void state_changed() {
    ++state_version_;
    state_wanted_ = true;
  }
  // Nothing has changed, but this member does not have the state yet.
  void repeat_state(uint64_t incarnation) { lacking_.insert(incarnation); }
  int64_t state_version() const { return state_version_; }
  // Members that must hear the state though it has not changed.
  std::set<uint64_t> take_lacking() { return std::exchange(lacking_, {}); }
  // Whether states must go out now to all, once.
  bool take_state_wanted() { return std::exchange(state_wanted_, false); }

  std::vector<Outgoing> take_messages() { return std::exchange(messages_, {}); }
  std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }

 private:
  std::vector<Outgoing> messages_;
  std::vector<std::string> notices_;
  std::set<uint64_t> lacking_;
  int64_t state_version_ = 1;
  bool state_wanted_ = true;
};

// "1 server", "2 servers"; plural: where it is not the noun with an s.
std::string counted(int64_t count, const std::string& noun, const std::string& plural = "");

}  // namespace pushpull
