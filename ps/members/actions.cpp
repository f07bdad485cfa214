#include "ps/members/actions.h"

namespace pushpull {

void Actions::send_to_servers(const Membership& members, const Message& message) {
  for (const auto& [incarnation, member] : members.all()) {
    if (member.role == wire::ROLE_SERVER) send(member.peer, message);
  }
}

void Actions::refuse(const PeerId& peer, ErrorCode code, const std::string& text) {
  Message message;
  message.header.mutable_refused()->set_code(static_cast<int>(code));
  message.header.mutable_refused()->set_text(text);
  send(peer, std::move(message));
}

std::string counted(int64_t count, const std::string& noun, const std::string& plural) {
  const std::string many = plural.empty() ? noun + "s" : plural;
  return std::to_string(count) + " " + (count == 1 ? noun : many);
}

}  // namespace pushpull
