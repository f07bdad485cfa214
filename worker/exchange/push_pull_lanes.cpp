// PushPull: what goes out, and on which connection. Each server is reached over one or several
// connections, lanes; its slices take turns on them. A pull goes out on each lane, a push in pieces
// on all of them, and what has arrived of the weights is told the server lane by lane.
#include <algorithm>

#include "worker/exchange/push_pull.h"

namespace pushpull {

namespace {

// Told the server while so much less than the window is under way that it need not stop.
constexpr int64_t kPartsOfWindow = 4;
// On its way there is about as much as the link carries in this time: more would only stand in
// queues, where what forward needs first cannot overtake it. A worker that computes a layer hears
// and says nothing meanwhile, so it is several times a round trip.
constexpr double kWindowMs = 50.0;
constexpr int64_t kLeastWindow = int64_t{2} << 20;
constexpr double kForgetting = 0.9;  // of the best rate, with each pull
constexpr int kMostMissing = 4096;   // named in one repeated pull

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
  link.asked_on_device = link.asked_in_place && link.on_device;
  pull.set_on_device(link.asked_on_device);
  for (int i = 0; i < lanes; ++i) {
    Lane& lane = link.lanes[static_cast<size_t>(i)];
    if (!repeat || !wants_exact_version()) {
      lane.received_bytes = 0;
      lane.told_bytes = 0;
    }
    lane.window_bytes = wants_exact_version() && !link.asked_in_place ? window_of(lane) : 0;
    pull.set_window_bytes(lane.window_bytes);
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

int64_t PushPull::window_of(const Lane& lane) const {
  const int64_t least =
      std::min(setup_.window_bytes, std::max(kLeastWindow, 2 * setup_.job.slice_bytes));
  if (lane.bytes_per_ms == 0) return setup_.window_bytes;
  return std::clamp(static_cast<int64_t>(lane.bytes_per_ms * kWindowMs), least,
                    setup_.window_bytes);
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

// A server that answers with weights says at once which pushes it has. What it lacks when it was
// asked again, or when it has nothing more to send, is lost.
void PushPull::check_pushes(int server, bool asked_again, int64_t now_ms) {
  const ServerLink& link = links_[static_cast<size_t>(server)];
  if (link.unacknowledged.empty() || pushing_) return;
  if (link.missing > 0 && (!asked_again || lockstep())) return;
  repeat_pushes(server);
  if (link.missing == 0) send_pull(server, true, now_ms);
}

void PushPull::acknowledge(ServerLink& link, int64_t through) {
  while (!link.unacknowledged.empty() && link.unacknowledged.front().number <= through) {
    // what async and ssp acknowledge is applied
    if (link.reads_gradients && lockstep()) {
      link.unread.push_back(std::move(link.unacknowledged.front()));
    }
    link.unacknowledged.pop_front();
  }
}

void PushPull::forget_read(int64_t version) {
  for (ServerLink& link : links_) {
    std::erase_if(link.unread, [&](const SentPush& push) { return push.step < version; });
  }
}

bool PushPull::pushes_arrived() const {
  return std::all_of(links_.begin(), links_.end(),
                     [](const ServerLink& link) { return link.unacknowledged.empty(); });
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

// The answer is complete. What took no time says nothing.
void PushPull::measure(ServerLink& link) {
  for (Lane& lane : link.lanes) {
    const int64_t ms = link.heard_ms - lane.first_ms;
    const int64_t bytes = lane.received_bytes - lane.first_bytes;
    if (bytes <= 0) continue;
    const double rate = static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(1, ms));
    lane.bytes_per_ms = std::max(rate, lane.bytes_per_ms * kForgetting);
  }
}

void PushPull::count_received(int server, const wire::Weights& weights,
                              const std::vector<Payload>& payloads) {
  ServerLink& link = links_[static_cast<size_t>(server)];
  if (weights.lane() < 0 || weights.lane() >= lanes(server)) return;
  Lane& lane = link.lanes[static_cast<size_t>(weights.lane())];
  int64_t bytes = 0;
  for (const Payload& payload : payloads) bytes += static_cast<int64_t>(payload.bytes.size());
  if (lane.received_bytes == 0) {
    lane.first_ms = link.heard_ms;
    lane.first_bytes = bytes;
  }
  lane.received_bytes += bytes;
  if (lane.window_bytes == 0) return;
  if (link.missing == 0) return measure(link);
  if (lane.received_bytes - lane.told_bytes < lane.window_bytes / kPartsOfWindow) return;
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
