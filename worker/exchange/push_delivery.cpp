#include "worker/exchange/push_delivery.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/error.h"

namespace pushpull {

namespace {

// Size of a message of references: large enough to be cheap, small enough to keep the server busy.
constexpr size_t kNotificationBytes = size_t{4} << 20;

// Kept pushes in flight to a replacement server; its acknowledgements release the next ones.
constexpr int64_t kKeptWindow = 8;

}  // namespace

PushDelivery::PushDelivery(SenderId sender, const ConnectionMap& connections, Options options,
                           std::vector<ToServer>& outgoing)
    : sender_(sender),
      connections_(connections),
      options_(options),
      outgoing_(outgoing),
      servers_(static_cast<size_t>(connections.servers())) {
  for (int server = 0; server < connections.servers(); ++server) {
    at(server).pending.resize(static_cast<size_t>(connections.count(server)));
  }
}

PushDelivery::Pending& PushDelivery::pending_of(int slice) {
  Server& server = at(connections_.map().server_of(slice));
  return server.pending[static_cast<size_t>(connections_.of_slice(slice))];
}

const PushDelivery::Pending& PushDelivery::pending_of(int slice) const {
  const Server& server = at(connections_.map().server_of(slice));
  return server.pending[static_cast<size_t>(connections_.of_slice(slice))];
}

// ---- one push ----

void PushDelivery::begin(Head head) {
  head_ = std::move(head);
  number_ = next_number_++;
  running_ = true;
  for (int server = 0; server < connections_.servers(); ++server) {
    if (!gets_pushes(server)) continue;
    at(server).unacknowledged.push_back({number_, head_.step, {}});
  }
}

bool PushDelivery::is_full(int slice, bool in_place) const {
  const size_t most =
      in_place ? std::max(kNotificationBytes, options_.flush_bytes) : options_.flush_bytes;
  return pending_of(slice).bytes >= most;
}

void PushDelivery::open(Pending& pending, int server) {
  wire::Exchange* exchange = pending.message.header.mutable_exchange();
  sender_.put(exchange->mutable_sender());
  wire::Push* push = exchange->mutable_push();
  push->set_number(number_);
  push->set_step(head_.step);
  push->set_lo(static_cast<int32_t>(head_.range.lo));
  push->set_hi(static_cast<int32_t>(head_.range.hi));
  push->set_stage(connections_.part().stage);
  if (!options_.reports) {
    push->set_parts_total(connections_.pushed(server) * head_.parts_each);
    push->mutable_read_versions()->Assign(head_.read_versions.begin(), head_.read_versions.end());
  }
  push->set_steps(static_cast<int32_t>(head_.steps));
  *push->mutable_grant() = head_.grant;
  // without weights of this server, nothing else would tell that the push has arrived
  push->set_acknowledge(options_.acknowledge || connections_.pulled(server).empty());
  push->set_first(at(server).first);
}

void PushDelivery::add_part(int slice, Range node, Payload payload) {
  Pending& pending = pending_of(slice);
  if (!pending.message.header.has_exchange()) open(pending, connections_.map().server_of(slice));
  wire::Part* part = pending.message.header.mutable_exchange()->mutable_push()->add_parts();
  part->set_slice(slice);
  part->set_lo(static_cast<int32_t>(node.lo));
  part->set_hi(static_cast<int32_t>(node.hi));
  pending.bytes += payload.bytes.size();
  pending.message.payloads.push_back(std::move(payload));
}

void PushDelivery::flush(int server, int connection) {
  Pending& pending = at(server).pending[static_cast<size_t>(connection)];
  Message message = std::exchange(pending.message, {});
  pending.bytes = 0;
  at(server).unacknowledged.back().messages.push_back({server, message, connection});
  if (pending.pull) {
    *message.header.mutable_exchange()->mutable_pull() = *pending.pull;
    pending.pull.reset();
  }
  outgoing_.push_back({server, std::move(message), connection});
}

void PushDelivery::end(std::span<const float> losses, double squares, const std::string& data_hash,
                       std::span<const wire::BadGradient> bad,
                       std::optional<double> learning_rate) {
  running_ = false;
  for (int server = 0; server < connections_.servers(); ++server) {
    if (!gets_pushes(server)) continue;
    // a push is incomplete until the last message of a connection with parts arrives
    std::vector<Pending>& pending = at(server).pending;
    auto last = std::ranges::find_if(
        pending, [](const Pending& p) { return p.message.header.has_exchange(); });
    if (last == pending.end()) {
      PP_ASSERT(options_.reports || connections_.pushed(server) == 0);
      last = pending.begin();
      open(*last, server);
    }
    wire::Push* push = last->message.header.mutable_exchange()->mutable_push();
    push->set_squares(squares);
    if (learning_rate) push->set_learning_rate(*learning_rate);
    if (server != 0) continue;
    push->mutable_losses()->Assign(losses.begin(), losses.end());
    push->set_data_hash(data_hash);
    push->mutable_bad()->Assign(bad.begin(), bad.end());
  }
}

void PushDelivery::flush_all() {
  for (int server = 0; server < connections_.servers(); ++server) {
    const std::vector<Pending>& pending = at(server).pending;
    for (size_t i = 0; i < pending.size(); ++i) {
      if (pending[i].message.header.has_exchange()) flush(server, static_cast<int>(i));
    }
  }
}

bool PushDelivery::take_along(int server, int connection, const wire::Pull& pull) {
  Pending& pending = at(server).pending[static_cast<size_t>(connection)];
  if (!running_ && !pending.message.header.has_exchange()) return false;
  pending.pull = pull;
  if (!running_) flush(server, connection);
  return true;
}

// ---- acknowledgements ----

void PushDelivery::acknowledge(int server, int64_t through) {
  Server& s = at(server);
  while (!s.unacknowledged.empty() && s.unacknowledged.front().number <= through) {
    if (options_.keep && server != 0) {
      s.kept.push_back(std::move(s.unacknowledged.front()));
    } else if (s.reads_memory && !options_.acknowledged_is_applied) {
      s.unread.push_back(std::move(s.unacknowledged.front()));
    }
    s.unacknowledged.pop_front();
  }
  if (s.sent_through < s.kept_through) send_kept(server);
}

void PushDelivery::applied(int64_t version) {
  for (Server& server : servers_) {
    std::erase_if(server.unread, [&](const Sent& push) { return push.step < version; });
  }
}

int64_t PushDelivery::unacknowledged() const {
  int64_t most = 0;
  for (const Server& server : servers_) most = std::max(most, std::ssize(server.unacknowledged));
  return most;
}

void PushDelivery::send_again(int server) {
  const Server& s = at(server);
  for (const Sent& push : s.unacknowledged) {
    if (push.number <= s.sent_through || push.number > s.kept_through) send_messages(push);
  }
}

void PushDelivery::send_messages(const Sent& push) {
  outgoing_.insert(outgoing_.end(), push.messages.begin(), push.messages.end());
}

// ---- replacement of a lost server ----

void PushDelivery::copied(int64_t step) {
  copied_step_ = step;
  for (Server& s : servers_) {
    std::erase_if(s.kept, [&](const Sent& push) { return push.step < step; });
  }
}

void PushDelivery::start_over(int server) {
  PP_ASSERT(!running_);
  Server& s = at(server);
  if (!gets_pushes(server)) return;
  s.unacknowledged.insert(s.unacknowledged.begin(), std::make_move_iterator(s.kept.begin()),
                          std::make_move_iterator(s.kept.end()));
  s.kept.clear();
  // the lost server has applied these, though it could not acknowledge them
  std::erase_if(s.unacknowledged, [&](const Sent& push) { return push.step < copied_step_; });
  s.first = s.unacknowledged.empty() ? next_number_ : s.unacknowledged.front().number;
  s.sent_through = 0;
  s.kept_through = s.unacknowledged.empty() ? 0 : s.unacknowledged.back().number;
  const auto readdress = [&s](Message& message) {
    wire::Push* const head = message.header.mutable_exchange()->mutable_push();
    head->set_first(s.first);
    head->set_acknowledge(true);
  };
  for (Sent& push : s.unacknowledged) {
    for (ToServer& out : push.messages) readdress(out.message);
  }
  // the last messages of a push that has just ended
  for (Pending& pending : s.pending) {
    if (pending.message.header.has_exchange()) readdress(pending.message);
  }
  send_kept(server);
}

void PushDelivery::send_kept(int server) {
  Server& s = at(server);
  const int64_t most = s.unacknowledged.empty() ? 0 : s.unacknowledged.front().number + kKeptWindow;
  for (const Sent& push : s.unacknowledged) {
    if (push.number <= s.sent_through) continue;
    if (push.number >= most || push.number > s.kept_through) return;
    send_messages(push);
    s.sent_through = push.number;
  }
}

}  // namespace pushpull
