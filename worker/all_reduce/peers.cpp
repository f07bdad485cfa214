#include "worker/all_reduce/peers.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "common/base/error.h"

namespace pushpull {

const wire::PeerSender* peer_sender(const wire::Header& header) {
  switch (header.body_case()) {
    case wire::Header::kPeerChunk:
      return &header.peer_chunk().sender();
    case wire::Header::kPeerText:
      return &header.peer_text().sender();
    case wire::Header::kPeerQuestion:
      return &header.peer_question().sender();
    case wire::Header::kPeerAnswer:
      return &header.peer_answer().sender();
    default:
      return nullptr;
  }
}

Message peer_chunk(const wire::PeerSender& sender, int64_t operation, int stage, int index,
                   Payload payload) {
  Message message;
  wire::PeerChunk* chunk = message.header.mutable_peer_chunk();
  *chunk->mutable_sender() = sender;
  chunk->set_operation(operation);
  chunk->set_stage(stage);
  chunk->set_index(index);
  message.payloads.push_back(std::move(payload));
  return message;
}

Message peer_text(const wire::PeerSender& sender, int64_t operation, std::string text) {
  Message message;
  wire::PeerText* out = message.header.mutable_peer_text();
  *out->mutable_sender() = sender;
  out->set_operation(operation);
  out->set_text(std::move(text));
  return message;
}

Message peer_question(const wire::PeerSender& sender) {
  Message message;
  *message.header.mutable_peer_question()->mutable_sender() = sender;
  return message;
}

Message peer_answer(const wire::PeerSender& sender, int64_t sent) {
  Message message;
  *message.header.mutable_peer_answer()->mutable_sender() = sender;
  message.header.mutable_peer_answer()->set_sent(sent);
  return message;
}

namespace {

constexpr int kAskMs = 1000;
constexpr int kPeersPollMs = 50;
constexpr int kMinQuestions = 3;  // before silence counts
// Receiving spins for this time before it sleeps: a sleep costs more than a short message takes.
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
      dealers_(context, {.max_frame_bytes = setup_.max_frame_bytes}, setup_.credentials),
      links_(setup_.all.size()) {
  PP_ASSERT(setup_.rank >= 0 && setup_.rank < size());
  dealers_.connect(setup_.all, setup_.rank);
  self_.set_term_id(setup_.term_id);
  self_.set_incarnation(setup_.all[static_cast<size_t>(rank())].incarnation);
  self_.set_rank(rank());
}

void Peers::begin(int64_t operation) {
  PP_ASSERT(operation == operation_ + 1);
  operation_ = operation;
  refused_ = 0;
  progress_ms_ = clock_.now_ms();
  check_us_ = now_us() + kPeersPollMs * int64_t{1000};
  const auto is_past = [&](const auto& entry) { return entry.first < operation; };
  std::erase_if(chunks_, is_past);
  std::erase_if(texts_, is_past);
  if (operation == 0) wait_for_proofs();
}

// Messages must not wait for a proof when an operation ends: Gloo's sums do not look after them.
void Peers::wait_for_proofs() {
  const int64_t begin_ms = clock_.now_ms();
  for (int r = dealers_.unready(); r >= 0; r = dealers_.unready()) {
    if (over_() || stopped_.load()) throw JobOver{};
    const int64_t waited_ms = clock_.now_ms() - begin_ms;
    if (waited_ms > static_cast<int64_t>(setup_.timeout_s * 1000)) {
      throw Error(ErrorCode::kUnreachable, "[all-reduce] " + name(r) +
                                               " has not proven this run's key for " +
                                               std::to_string(waited_ms / 1000) + " s");
    }
    if (!take_next()) poll(nullptr, kPeersPollMs);
  }
}

std::string Peers::name(int rank) const {
  const auto at = static_cast<size_t>(rank);
  const int worker = setup_.workers.empty() ? rank : setup_.workers[at];
  return "worker " + std::to_string(worker) + " at " + setup_.all[at].endpoint;
}

void Peers::send(int to, int stage, int index, Payload payload) {
  PP_ASSERT(stage >= 0 && index >= 0 && !payload.bytes.empty());
  bytes_sent_.fetch_add(std::ssize(payload.bytes), std::memory_order_relaxed);
  post(to, peer_chunk(self_, operation_, stage, index, std::move(payload)));
}

void Peers::send_text(int to, std::string text) {
  post(to, peer_text(self_, operation_, std::move(text)));
}

void Peers::post(int to, const Message& message) {
  ++links_[static_cast<size_t>(to)].sent;
  dealers_.send(to, message);
}

Peers::Link* Peers::link_of(const wire::Header& header, int* from) {
  const wire::PeerSender* sender = peer_sender(header);
  if (sender == nullptr || sender->term_id() != setup_.term_id) return nullptr;
  *from = sender->rank();
  if (*from < 0 || *from >= size() || *from == rank()) return nullptr;
  const auto at = static_cast<size_t>(*from);
  return sender->incarnation() == setup_.all[at].incarnation ? &links_[at] : nullptr;
}

bool Peers::take(Message& message) {
  int from = -1;
  Link* const link = link_of(message.header, &from);
  if (link == nullptr) return false;
  link->heard_ms = clock_.now_ms();
  link->questions = 0;
  if (message.header.has_peer_question()) {
    dealers_.send(from, peer_answer(self_, link->sent));
    return true;
  }
  if (message.header.has_peer_answer()) {
    link->lost = message.header.peer_answer().sent() > link->received ? link->lost + 1 : 0;
    return true;
  }
  ++link->received;
  if (message.header.has_peer_chunk()) return take_chunk(from, message);
  const wire::PeerText& text = message.header.peer_text();
  if (text.operation() < operation_) return false;
  check_operation(from, text.operation());
  texts_.emplace_back(text.operation(), Text{from, text.text()});
  return true;
}

bool Peers::take_chunk(int from, Message& message) {
  const wire::PeerChunk& chunk = message.header.peer_chunk();
  if (chunk.stage() < 0 || chunk.index() < 0 || chunk.operation() < operation_) return false;
  check_operation(from, chunk.operation());
  chunks_.emplace_back(chunk.operation(), Chunk{from, chunk.stage(), chunk.index(),
                                                std::move(message.payloads.front())});
  return true;
}

// No worker can be two operations ahead, because each operation needs this worker's part.
void Peers::check_operation(int from, int64_t operation) const {
  if (operation <= operation_ + 1) return;
  throw Error(ErrorCode::kProtocol, "[all-reduce] " + name(from) + " is at operation " +
                                        std::to_string(operation) + ", this worker at " +
                                        std::to_string(operation_));
}

// Takes one message. Returns false if there is none.
bool Peers::take_next() {
  auto received = router_->receive();
  undecoded_.store(router_->rejected_frames(), std::memory_order_relaxed);
  if (!received) return false;
  if (!take(received->second)) rejected_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

template <class Kind, class Other>
Kind Peers::next(Arrived<Kind>& wanted, Arrived<Other>& other, std::span<const int64_t> missing) {
  const auto runs = [&](const auto& entry) { return entry.first == operation_; };
  int64_t spin_until_us = now_us() + kSpinUs;
  for (;;) {
    for (auto stray = std::find_if(other.begin(), other.end(), runs); stray != other.end();
         stray = std::find_if(other.begin(), other.end(), runs)) {
      count_refused();
      other.erase(stray);
    }
    const auto found = std::find_if(wanted.begin(), wanted.end(), runs);
    if (found != wanted.end()) {
      Kind out = std::move(found->second);
      wanted.erase(found);
      if (refused_ > 0) progress_ms_ = clock_.now_ms();
      return out;
    }
    wait_for_message(missing, &spin_until_us);
  }
}

// Takes one message if one arrives soon.
void Peers::wait_for_message(std::span<const int64_t> missing, int64_t* spin_until_us) {
  if (over_() || stopped_.load()) throw JobOver{};
  const bool came = take_next();
  const int64_t now = now_us();
  // checks even while messages arrive: a flood of useless ones must not outlast a deadline
  if (now >= check_us_) {
    check(missing);
    poll(nullptr, 0);
    check_us_ = now + kPeersPollMs * int64_t{1000};
  }
  if (came || now < *spin_until_us) return;
  poll(nullptr, kPeersPollMs);
  *spin_until_us = 0;
}

void Peers::poll(const WakeFd* wake, int timeout_ms) {
  poll_items_.assign(1, {router_->socket().handle(), 0, ZMQ_POLLIN, 0});
  if (wake != nullptr) poll_items_.push_back({nullptr, wake->fd(), ZMQ_POLLIN, 0});
  if (dealers_.unready() >= 0) dealers_.add_unready(poll_items_);
  poll_sockets(poll_items_, timeout_ms);
}

Peers::Chunk Peers::receive(std::span<const int64_t> missing) {
  Chunk chunk = next(chunks_, texts_, missing);
  bytes_received_.fetch_add(std::ssize(chunk.payload.bytes), std::memory_order_relaxed);
  return chunk;
}

Peers::Text Peers::receive_text(std::span<const int64_t> missing) {
  return next(texts_, chunks_, missing);
}

void Peers::count_refused() {
  if (refused_++ == 0) progress_ms_ = clock_.now_ms();
  rejected_.fetch_add(1, std::memory_order_relaxed);
}

void Peers::refuse(const Chunk& chunk) {
  count_refused();
  bytes_received_.fetch_sub(std::ssize(chunk.payload.bytes), std::memory_order_relaxed);
}

void Peers::refuse(const Text& /*text*/) { count_refused(); }

// Asks workers with missing messages how many they have sent. Throws if one is silent for too long
// or has lost messages.
void Peers::check(std::span<const int64_t> missing) {
  const int64_t now = clock_.now_ms();
  const auto timeout_ms = static_cast<int64_t>(setup_.timeout_s * 1000);
  if (refused_ > 0 && now - progress_ms_ > timeout_ms) {
    throw Error(ErrorCode::kProtocol, "[all-reduce] " + std::to_string(refused_) +
                                          " messages of operation " + std::to_string(operation_) +
                                          " were refused, and the expected ones have not arrived");
  }
  for (int r = 0; r < size(); ++r) {
    Link& link = links_[static_cast<size_t>(r)];
    if (r == rank() || missing[static_cast<size_t>(r)] <= 0) continue;
    if (link.lost >= 2) {
      throw Error(ErrorCode::kUnreachable,
                  "[all-reduce] messages of " + name(r) + " were lost in operation " +
                      std::to_string(operation_) + ": its connection broke");
    }
    // silence counts from the first question
    if (link.questions == 0) link.heard_ms = std::max(link.heard_ms, now - kAskMs);
    const int64_t silent = now - link.heard_ms;
    if (link.questions >= kMinQuestions && silent > timeout_ms) {
      throw Error(ErrorCode::kUnreachable, "[all-reduce] " + name(r) + " has not answered for " +
                                               std::to_string(silent / 1000) + " s, waiting for " +
                                               std::to_string(missing[static_cast<size_t>(r)]) +
                                               " messages of operation " +
                                               std::to_string(operation_));
    }
    // sends several questions within a timeout
    if (link.asked_ms >= 0 && now - link.asked_ms < std::min<int64_t>(kAskMs, timeout_ms / 5)) {
      continue;
    }
    link.asked_ms = now;
    ++link.questions;
    dealers_.send(r, peer_question(self_));
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
    if (r != rank()) send_text(r, mine);
  }
  out[static_cast<size_t>(rank())] = mine;
  missing[static_cast<size_t>(rank())] = 0;
  for (int left = size() - 1; left > 0;) {
    Text text = receive_text(missing);
    int64_t& open = missing[static_cast<size_t>(text.rank)];
    if (open == 0) {
      refuse(text);
      continue;
    }
    open = 0;
    --left;
    out[static_cast<size_t>(text.rank)] = std::move(text.text);
  }
  return out;
}

void Peers::serve(const WakeFd& wake, int timeout_ms) {
  poll(&wake, timeout_ms);
  clock_.now_ms();
  if ((poll_items_[0].revents & ZMQ_POLLIN) == 0) return;
  // takes a limited number: a flood must not delay the next operation
  for (int i = 0; i < 64 && take_next(); ++i) {
  }
}

void Peers::count_bytes(int64_t sent, int64_t received) {
  bytes_sent_.fetch_add(sent, std::memory_order_relaxed);
  bytes_received_.fetch_add(received, std::memory_order_relaxed);
}

}  // namespace pushpull
