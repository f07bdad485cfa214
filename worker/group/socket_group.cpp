#include "worker/group/socket_group.h"

#include <string>
#include <utility>

#include "common/net/intervals.h"

namespace pushpull {

namespace {

// Of one turn: a flood must delay neither the step nor a deadline.
constexpr int64_t kTurnMessages = 256;
constexpr int64_t kTurnBytes = int64_t{256} << 20;

}  // namespace

SocketGroup::SocketGroup(const Job& job, zmq::context_t& context, std::unique_ptr<Router> router,
                         const GroupSetup& setup, Credentials credentials)
    : memory_(job, setup.max_part_bytes),
      parts_([&] {
        GroupSetup all = setup;
        all.lends = memory_.lends();
        return all;
      }()),
      router_(std::move(router)),
      dealers_(context, data_limits(setup.max_part_bytes), std::move(credentials)) {}

void SocketGroup::begin(int64_t attempt, std::vector<GroupMember> members) {
  std::vector<PeerAddress> all;
  for (const GroupMember& member : members) all.push_back({member.endpoint, member.incarnation});
  parts_.begin(attempt, members);
  log_.rename("worker " + std::to_string(members[static_cast<size_t>(parts_.stage())].rank));
  dealers_.connect(all, parts_.stage());
  memory_.begin(attempt, std::move(members), parts_.stage());
}

void SocketGroup::end() {
  parts_.end();
  dealers_.connect({}, -1);
}

void SocketGroup::exchange(const std::optional<GroupParts::Wait>& wait) {
  send();  // before a part that has just been computed waits for those that arrive
  TurnBudget budget(kTurnMessages, kTurnBytes);
  while (auto received = router_->receive(&budget)) {
    if (memory_.on_message(received->second)) parts_.on_message(received->second);
  }
  parts_.on_tick(clock_.now_ms(), wait);
  send();
  dealers_.unready();
  const std::string line = dealers_.take_warning();
  if (!line.empty()) log_.warn(line);
}

void SocketGroup::send() {
  for (ToMember& out : parts_.take_outgoing()) {
    memory_.on_send(out);
    dealers_.send(out.stage, out.message);
  }
}

void SocketGroup::add_poll_items(std::vector<zmq::pollitem_t>& items) {
  items.push_back({router_->socket().handle(), 0, ZMQ_POLLIN, 0});
  dealers_.add_unready(items);
}

}  // namespace pushpull
