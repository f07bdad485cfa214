// PushPull: what goes out, and on which connection. Each server is reached over one or several
// connections, lanes; its slices take turns on them. A pull goes out on each lane, a push in pieces
// on all of them, and what has arrived of the weights is told the server lane by lane.
#include <algorithm>

#include "worker/push_pull.h"

namespace pushpull {

namespace {

// Told the server while so much less than the window is under way that it need not stop.
constexpr int64_t kPartsOfWindow = 4;
constexpr int kMostMissing = 4096;  // named in one repeated pull

}  // namespace

int PushPull::lanes(int server) const {
  const auto slices = std::ssize(links_[static_cast<size_t>(server)].slices);
  return static_cast<int>(std::clamp<int64_t>(slices, 1, setup_.job.connections));
}

int PushPull::lane_of(int slice) const {
  return slice / setup_.servers % lanes(map_.server_of(slice));
}

void PushPull::set_sender(wire::Sender* sender) const {
  sender->set_run(setup_.run);
  sender->set_incarnation(setup_.incarnation);
}

Message PushPull::exchange_message() const {
  Message message;
  set_sender(message.header.mutable_exchange()->mutable_sender());
  return message;
}

void PushPull::send_pull(int server, bool repeat, int64_t now_ms) {
  ServerLink& link = links_[static_cast<size_t>(server)];
  if (!repeat) {
    link.asked_ms = now_ms;
    link.heard_ms = now_ms;
    link.repeats = 0;
  }
  link.repeat_ms = now_ms + kPullRepeatMs;
  if (repeat) ++link.asked;
  wire::Pull pull = pull_;
  pull.set_asked(link.asked);
  pull.set_newest_lease(newest_lease_);
  const int lanes = pull.lease_only() ? 1 : this->lanes(server);
  pull.set_lanes(lanes);
  link.asked_in_place = link.in_place && !(pull_.latest() && latest_lies_apart_);
  pull.set_in_place(link.asked_in_place);
  if (wants_exact_version() && !link.asked_in_place) pull.set_window_bytes(setup_.window_bytes);
  for (int i = 0; i < lanes; ++i) {
    Lane& lane = link.lanes[static_cast<size_t>(i)];
    if (!repeat || !wants_exact_version()) {
      lane.received_bytes = 0;
      lane.told_bytes = 0;
    }
    pull.set_lane(i);
    pull.set_want_lease(pool() && server == 0 && i == 0);
    if (repeat && wants_exact_version()) add_progress(server, i, &pull);
    if (pushing_) {  // goes with the first message of the push on this lane
      lane.pull = pull;
      continue;
    }
    if (lane.pending.header.has_exchange()) {
      // rides on the last message of the push
      lane.pull = pull;
      flush(server, i);
      continue;
    }
    Message message = exchange_message();
    *message.header.mutable_exchange()->mutable_pull() = pull;
    outgoing_.push_back({server, std::move(message), i});
  }
}

void PushPull::flush(int server, int lane_index) {
  ServerLink& link = links_[static_cast<size_t>(server)];
  Lane& lane = link.lanes[static_cast<size_t>(lane_index)];
  Message message = std::exchange(lane.pending, {});
  lane.pending_bytes = 0;
  link.unacknowledged.back().messages.push_back({server, message, lane_index});
  if (lane.pull) {
    *message.header.mutable_exchange()->mutable_pull() = *lane.pull;
    lane.pull.reset();
  }
  outgoing_.push_back({server, std::move(message), lane_index});
}

void PushPull::repeat_pushes(int server) {
  ServerLink& link = links_[static_cast<size_t>(server)];
  link.pushed_at = link.asked;
  for (const SentPush& push : link.unacknowledged) {
    outgoing_.insert(outgoing_.end(), push.messages.begin(), push.messages.end());
  }
}

// A lane keeps the order, so whoever answers a question has taken what was sent before it. Over a
// slow link a push is under way for many seconds, and to repeat it then would double the wait.
bool PushPull::push_is_lost(const ServerLink& link) const {
  if (link.unacknowledged.empty() || pushing_) return false;
  const auto lanes = static_cast<std::ptrdiff_t>(pull_.lease_only() ? 1 : link.lanes.size());
  return std::all_of(link.lanes.begin(), link.lanes.begin() + lanes,
                     [&](const Lane& lane) { return lane.heard > link.pushed_at; });
}

void PushPull::add_progress(int server, int lane_index, wire::Pull* pull) const {
  const ServerLink& link = links_[static_cast<size_t>(server)];
  const Lane& lane = link.lanes[static_cast<size_t>(lane_index)];
  pull->set_heard(lane.heard);
  pull->set_received_bytes(lane.received_bytes);
  pull->clear_missing();
  for (const int slice : link.slices) {
    if (lane_of(slice) != lane_index || weights_.has(slice)) continue;
    if (pull->missing_size() == kMostMissing) break;
    pull->add_missing(slice);
  }
}

void PushPull::count_received(int server, const wire::Weights& weights,
                              const std::vector<Payload>& payloads) {
  ServerLink& link = links_[static_cast<size_t>(server)];
  if (weights.lane() < 0 || weights.lane() >= lanes(server)) return;
  Lane& lane = link.lanes[static_cast<size_t>(weights.lane())];
  for (const Payload& payload : payloads) {
    lane.received_bytes += static_cast<int64_t>(payload.bytes.size());
  }
  if (setup_.window_bytes == 0 || link.asked_in_place) return;
  if (!wants_exact_version() || link.missing == 0) return;
  if (lane.received_bytes - lane.told_bytes < setup_.window_bytes / kPartsOfWindow) return;
  lane.told_bytes = lane.received_bytes;
  Message message;
  wire::Received* received = message.header.mutable_received();
  set_sender(received->mutable_sender());
  received->set_pull(pull_.number());
  received->set_lane(weights.lane());
  received->set_bytes(lane.received_bytes);
  outgoing_.push_back({server, std::move(message), weights.lane()});
}

}  // namespace pushpull
