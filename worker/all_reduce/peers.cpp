#include "worker/all_reduce/peers.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "common/base/error.h"

namespace pushpull {

namespace {

// Stages of messages that belong to no operation.
constexpr int kQuestion = -1;  // are you there, and how many messages have you sent me?
constexpr int kAnswer = -2;    // so many (PeerChunk.operation)

constexpr int kAskMs = 1000;
constexpr int kPollMs = 50;
constexpr int kLeastQuestions = 3;  // before silence counts
// A message that comes within this is taken without a sleep of this thread, which costs more than
// a short message takes.
constexpr int64_t kSpinUs = 50;

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Peers::Peers(zmq::context_t& context, std::unique_ptr<Router> router, PeersSetup setup,
             std::function<bool()> over)
    : setup_(std::move(setup)),
      over_(std::move(over)),
      router_(std::move(router)),
      links_(setup_.all.size()) {
  PP_ASSERT(setup_.rank >= 0 && setup_.rank < size());
  EndpointLimits limits;
  limits.max_frame_bytes = setup_.max_frame_bytes;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const auto at = static_cast<size_t>(r);
    links_[at].dealer = std::make_unique<Dealer>(context, setup_.all[at].endpoint, limits);
  }
}

void Peers::begin(int64_t operation) {
  PP_ASSERT(operation == operation_ + 1);
  operation_ = operation;
  refused_ = 0;
  progress_ms_ = clock_.now_ms();
  check_us_ = now_us() + kPollMs * int64_t{1000};
  std::erase_if(arrived_, [&](const auto& entry) { return entry.first < operation; });
}

std::string Peers::name(int rank) const {
  return "worker " + std::to_string(rank) + " at " + setup_.all[static_cast<size_t>(rank)].endpoint;
}

void Peers::send(int to, int stage, int index, Payload payload, std::string blob) {
  PP_ASSERT(stage >= 0 && index >= 0);
  Message message;
  wire::PeerChunk* chunk = message.header.mutable_peer_chunk();
  chunk->set_run(setup_.run);
  chunk->set_incarnation(setup_.all[static_cast<size_t>(rank())].incarnation);
  chunk->set_rank(rank());
  chunk->set_operation(operation_);
  chunk->set_stage(stage);
  chunk->set_index(index);
  if (!blob.empty()) chunk->set_blob(std::move(blob));
  bytes_sent_.fetch_add(static_cast<int64_t>(payload.bytes.size()), std::memory_order_relaxed);
  if (payload.owner) message.payloads.push_back(std::move(payload));
  Link& link = links_[static_cast<size_t>(to)];
  ++link.sent;
  link.dealer->send(message);
}

void Peers::send_control(int to, int stage, int64_t count) {
  Message message;
  wire::PeerChunk* chunk = message.header.mutable_peer_chunk();
  chunk->set_run(setup_.run);
  chunk->set_incarnation(setup_.all[static_cast<size_t>(rank())].incarnation);
  chunk->set_rank(rank());
  chunk->set_stage(stage);
  chunk->set_operation(count);
  links_[static_cast<size_t>(to)].dealer->send(message);
}

bool Peers::take(Message& message) {
  if (!message.header.has_peer_chunk()) return false;
  const wire::PeerChunk& chunk = message.header.peer_chunk();
  const int from = chunk.rank();
  if (chunk.run() != setup_.run || from < 0 || from >= size() || from == rank()) return false;
  if (chunk.incarnation() != setup_.all[static_cast<size_t>(from)].incarnation) return false;
  Link& link = links_[static_cast<size_t>(from)];
  link.heard_ms = clock_.now_ms();
  link.questions = 0;
  if (chunk.stage() == kQuestion) {
    send_control(from, kAnswer, link.sent);
    return true;
  }
  if (chunk.stage() == kAnswer) {
    link.lost = chunk.operation() > link.received ? link.lost + 1 : 0;
    return true;
  }
  ++link.received;
  if (chunk.stage() < 0 || chunk.index() < 0 || chunk.operation() < operation_) return false;
  // nobody can be two operations ahead: each needs this worker's part
  if (chunk.operation() > operation_ + 1) {
    throw Error(ErrorCode::kProtocol, "[all-reduce] " + name(from) + " is at operation " +
                                          std::to_string(chunk.operation()) + ", this worker at " +
                                          std::to_string(operation_));
  }
  Chunk out{from, chunk.stage(), chunk.index(), {}, chunk.blob()};
  if (!message.payloads.empty()) out.payload = std::move(message.payloads.front());
  arrived_.emplace_back(chunk.operation(), std::move(out));
  return true;
}

// Takes in one message. False: there was none.
bool Peers::take_next() {
  auto received = router_->receive();
  undecoded_.store(router_->rejected_frames(), std::memory_order_relaxed);
  if (!received) return false;
  if (!take(received->second)) rejected_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

Peers::Chunk Peers::receive(std::span<const int64_t> missing) {
  int64_t spin_until = now_us() + kSpinUs;
  for (;;) {
    const auto found = std::find_if(arrived_.begin(), arrived_.end(),
                                    [&](const auto& entry) { return entry.first == operation_; });
    if (found != arrived_.end()) {
      Chunk chunk = std::move(found->second);
      arrived_.erase(found);
      if (refused_ > 0) progress_ms_ = clock_.now_ms();
      bytes_received_.fetch_add(static_cast<int64_t>(chunk.payload.bytes.size()),
                                std::memory_order_relaxed);
      return chunk;
    }
    if (over_() || stopped_.load()) throw JobOver{};
    const bool came = take_next();
    const int64_t now = now_us();
    // also while messages come: a flood of what is of no use must not outlast a deadline
    if (now >= check_us_) {
      check(missing);
      check_us_ = now + kPollMs * int64_t{1000};
    }
    if (came || now < spin_until) continue;
    zmq::pollitem_t item{router_->socket().handle(), 0, ZMQ_POLLIN, 0};
    poll_sockets({&item, 1}, kPollMs);
    spin_until = 0;
  }
}

void Peers::refuse(const Chunk& chunk) {
  if (refused_++ == 0) progress_ms_ = clock_.now_ms();
  rejected_.fetch_add(1, std::memory_order_relaxed);
  bytes_received_.fetch_sub(static_cast<int64_t>(chunk.payload.bytes.size()),
                            std::memory_order_relaxed);
}

// Asks those whose messages are missing, and gives up on those that do not answer.
void Peers::check(std::span<const int64_t> missing) {
  const int64_t now = clock_.now_ms();
  const auto timeout_ms = static_cast<int64_t>(setup_.timeout_s * 1000);
  if (refused_ > 0 && now - progress_ms_ > timeout_ms) {
    throw Error(ErrorCode::kProtocol, "[all-reduce] " + std::to_string(refused_) +
                                          " messages of operation " + std::to_string(operation_) +
                                          " did not fit, and the right ones have not come");
  }
  for (int r = 0; r < size(); ++r) {
    Link& link = links_[static_cast<size_t>(r)];
    if (r == rank() || missing[static_cast<size_t>(r)] <= 0) continue;
    if (link.lost >= 2) {
      throw Error(ErrorCode::kUnreachable,
                  "[all-reduce] messages of " + name(r) + " were lost in operation " +
                      std::to_string(operation_) + ": its connection broke");
    }
    // silence counts from the first question on
    if (link.questions == 0) link.heard_ms = std::max(link.heard_ms, now - kAskMs);
    const int64_t silent = now - link.heard_ms;
    if (link.questions >= kLeastQuestions && silent > timeout_ms) {
      throw Error(ErrorCode::kUnreachable, "[all-reduce] " + name(r) + " has not answered for " +
                                               std::to_string(silent / 1000) + " s, waiting for " +
                                               std::to_string(missing[static_cast<size_t>(r)]) +
                                               " messages of operation " +
                                               std::to_string(operation_));
    }
    // several questions within a timeout
    if (link.asked_ms >= 0 && now - link.asked_ms < std::min<int64_t>(kAskMs, timeout_ms / 5)) {
      continue;
    }
    link.asked_ms = now;
    ++link.questions;
    send_control(r, kQuestion, 0);
  }
}

void Peers::wait_for_the_coordinator() const {
  const int64_t until = pushpull::now_ms() + static_cast<int64_t>(setup_.timeout_s * 1000);
  while (pushpull::now_ms() < until) {
    if (over_() || stopped_.load()) throw JobOver{};
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::vector<std::string> Peers::gather(const std::string& mine) {
  std::vector<std::string> out(links_.size());
  std::vector<int64_t> missing(links_.size(), 1);
  for (int r = 0; r < size(); ++r) {
    if (r != rank()) send(r, 0, 0, {}, mine);
  }
  out[static_cast<size_t>(rank())] = mine;
  missing[static_cast<size_t>(rank())] = 0;
  for (int left = size() - 1; left > 0;) {
    Chunk chunk = receive(missing);
    int64_t& open = missing[static_cast<size_t>(chunk.rank)];
    if (open == 0 || chunk.stage != 0 || chunk.index != 0) {
      refuse(chunk);
      continue;
    }
    open = 0;
    --left;
    out[static_cast<size_t>(chunk.rank)] = std::move(chunk.blob);
  }
  return out;
}

void Peers::serve(const WakeFd& wake, int timeout_ms) {
  std::array<zmq::pollitem_t, 2> items{
      {{router_->socket().handle(), 0, ZMQ_POLLIN, 0}, {nullptr, wake.fd(), ZMQ_POLLIN, 0}}};
  poll_sockets(items, timeout_ms);
  clock_.now_ms();
  if ((items[0].revents & ZMQ_POLLIN) == 0) return;
  // a flood must not keep the next operation waiting
  for (int i = 0; i < 64 && take_next(); ++i) {
  }
}

void Peers::count_bytes(int64_t sent, int64_t received) {
  bytes_sent_.fetch_add(sent, std::memory_order_relaxed);
  bytes_received_.fetch_add(received, std::memory_order_relaxed);
}

}  // namespace pushpull
