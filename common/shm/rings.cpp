#include "common/shm/rings.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "common/base/error.h"
#include "common/net/endpoint.h"
#include "common/net/frames.h"

namespace pushpull {

// The start of a segment. Its process writes it, the other one reads it.
struct RingPair::Head {
  alignas(64) std::atomic<uint64_t> written;  // bytes in the ring that follows, from the start
  alignas(64) std::atomic<uint64_t> taken;    // bytes read from the other process's ring
  alignas(64) std::atomic<uint32_t> sleeps;   // odd while the process sleeps
  int32_t bell;
  uint64_t bell_inode;
};

namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

constexpr size_t kHeadBytes = 256;
constexpr uint64_t kClosed = uint64_t{1} << 63;  // of `taken`: more than is ever written
constexpr int kLooksPerYield = 32;               // about a microsecond
constexpr int kLooksPerSource = 8;               // a source takes a system call
constexpr int kYieldsPerPoll = 8;
constexpr uint32_t kMaxFrames = 4096;
constexpr int64_t kMaxSegmentBytes = int64_t{1} << 20;

// Before the sizes of a message's frames, which the frames follow.
struct MessageHead {
  uint32_t frames;
  uint32_t connection;
};

[[noreturn]] void refuse_ring(const std::string& why) {
  throw Error(ErrorCode::kProtocol, "[shm] a ring of messages " + why);
}

// Leaves the core's other hyperthread more of it.
void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Opens the pipe for both directions: a write then fails when it is full, and never raises SIGPIPE.
UniqueFd open_bell(int64_t pid, int fd, uint64_t inode) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  const std::string pipe = "pipe:[" + std::to_string(inode) + "]";
  std::array<char, 64> target{};
  if (readlink(path.c_str(), target.data(), target.size() - 1) < 0 || pipe != target.data()) {
    refuse_ring("names a bell, " + path + ", that is no " + pipe);
  }
  UniqueFd opened(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat file {};
  if (opened.get() < 0 || fstat(opened.get(), &file) != 0 || !S_ISFIFO(file.st_mode) ||
      file.st_ino != inode) {
    refuse_ring("has a bell, " + path + ", that cannot be opened");
  }
  return opened;
}

}  // namespace

Rings::Rings(Wait wait, std::chrono::milliseconds look) : look_(look), spinning_(wait) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    throw Error(ErrorCode::kFailed, std::string("[shm] no pipe: ") + std::strerror(errno));
  }
  bell_ = UniqueFd(ends[0]);
  to_bell_ = UniqueFd(ends[1]);
  struct stat file {};
  if (fstat(to_bell_.get(), &file) == 0) inode_ = file.st_ino;
}

bool Rings::pairs_have_message() const {
  return std::ranges::any_of(pairs_, [](const RingPair* pair) { return pair->has_message(); });
}

bool Rings::sources_have_message() {
  bool found = false;
  for (MessageSource* const source : sources_) found = source->look() || found;
  return found;
}

bool Rings::has_message() { return pairs_have_message() || sources_have_message(); }

void Rings::wait(std::vector<zmq::pollitem_t>& items, int timeout_ms) {
  const auto clear = [&items] {
    for (zmq::pollitem_t& item : items) item.revents = 0;
  };
  if (pairs_.empty() && sources_.empty()) {
    idle_ = false;
    return poll_sockets(items, timeout_ms);
  }
  // what a look has found may be there still, and then the sockets' descriptors say no more
  const auto must_look = [&] {
    return !idle_ || timeout_ms == 0 || std::chrono::steady_clock::now() - looked_ >= look_;
  };
  bool look = must_look();
  const bool here = has_message();
  if (!look && here) return clear();
  if (timeout_ms != 0 && !here && spin(items, look, timeout_ms)) return;
  look = must_look();
  count_sleep();
  // a message that was written before the sleep began has rung no bell
  bool rung = !look && !has_message() && wait_briefly(items);
  look = look || !has_message();
  if (look) {
    rung = wait_for(items, has_message() ? 0 : timeout_ms) || rung;
  } else {
    clear();
  }
  count_sleep();
  if (rung) clear_bell();
}

// Looks for a message, and offers the core to others now and then. Returns true if `wait` is over:
// a message is there, or an event of an item.
bool Rings::spin(std::vector<zmq::pollitem_t>& items, bool look, int timeout_ms) {
  using Clock = Spinning::Clock;
  const auto limit = std::min<Clock::duration>(spinning_.limit(Clock::now()),
                                               std::chrono::milliseconds(timeout_ms));
  if (limit == Clock::duration::zero()) return false;
  if (look) {
    if (wait_for(items, 0)) clear_bell();
    if (!idle_) return true;
  } else {
    for (zmq::pollitem_t& item : items) item.revents = 0;
  }
  list_descriptors(items);
  const auto until = Clock::now() + limit;
  int turn = 0;
  for (auto now = Clock::now(); now < until;) {
    for (int i = 0; i < kLooksPerYield; ++i) {
      if (pairs_have_message() || (i % kLooksPerSource == 0 && sources_have_message())) {
        spinning_.ended(true);
        return true;
      }
      relax();
    }
    const auto before = Clock::now();
    sched_yield();
    now = Clock::now();
    if (spinning_.yielded(now, now - before)) break;
    if (++turn % kYieldsPerPoll == 0 && descriptors_have_event(0)) return false;
  }
  spinning_.ended(false);
  return false;
}

// Waits for the bell, or for what may be an event of `items`. Whether a socket of ZeroMQ has a message
// takes a system call for each, and its descriptor misses one that an earlier call has noticed: therefore
// not for long. Returns whether the bell was rung.
bool Rings::wait_briefly(const std::vector<zmq::pollitem_t>& items) {
  // a source that has moved a part of a message waits for the rest
  const auto until = looked_ + look_;
  do {
    list_descriptors(items);
    if (descriptors_have_event(static_cast<int>(look_.count()))) break;
    const auto has_event = [](const pollfd& one) { return one.revents != 0; };
    if (std::none_of(polled_.begin() + 1, polled_.end(), has_event)) break;
  } while (polled_.front().revents == 0 && !sources_have_message() &&
           std::chrono::steady_clock::now() < until);
  return polled_.front().revents != 0;
}

void Rings::list_descriptors(const std::vector<zmq::pollitem_t>& items) {
  polled_.clear();
  polled_.push_back({bell_.get(), POLLIN, 0});
  for (const MessageSource* const source : sources_) polled_.push_back(source->poll_item());
  for (const zmq::pollitem_t& item : items) {
    int fd = item.fd;
    size_t size = sizeof fd;
    if (item.socket != nullptr) zmq_getsockopt(item.socket, ZMQ_FD, &fd, &size);
    polled_.push_back({fd, POLLIN, 0});
  }
}

// Waits for the bell, a source or one of the items. Returns true if one of the items has an event; then the
// sockets are not idle.
bool Rings::descriptors_have_event(int timeout_ms) {
  poll(polled_.data(), polled_.size(), timeout_ms);
  const auto has_event = [](const pollfd& one) { return one.revents != 0; };
  const bool found =
      std::any_of(polled_.begin() + 1 + std::ssize(sources_), polled_.end(), has_event);
  if (found) idle_ = false;
  return found;
}

// Waits for the bell, a source, or events of `items`. Returns whether the bell was rung.
bool Rings::wait_for(std::vector<zmq::pollitem_t>& items, int timeout_ms) {
  const size_t own = items.size();
  items.push_back({nullptr, bell_.get(), ZMQ_POLLIN, 0});
  for (const MessageSource* const source : sources_) {
    const pollfd item = source->poll_item();
    const bool writes = (item.events & POLLOUT) != 0;
    items.push_back(
        {nullptr, item.fd, static_cast<short>(writes ? ZMQ_POLLIN | ZMQ_POLLOUT : ZMQ_POLLIN), 0});
  }
  poll_sockets(items, timeout_ms);
  looked_ = std::chrono::steady_clock::now();
  const bool rung = items[own].revents != 0;
  items.resize(own);
  idle_ =
      std::ranges::none_of(items, [](const zmq::pollitem_t& item) { return item.revents != 0; });
  if (looked_ - read_ >= kRead) idle_ = false;
  if (!idle_) read_ = looked_;
  return rung;
}

bool Rings::sockets_are_idle() const {
  return idle_ && std::chrono::steady_clock::now() - looked_ < look_;
}

void Rings::mark() {
  for (RingPair* const pair : pairs_) {
    if (pair->is_open()) pair->marked_ = pair->their_head().written.load();
  }
}

void Rings::count_sleep() {
  for (RingPair* const pair : pairs_) pair->count_sleep();
}

void Rings::clear_bell() {
  std::array<char, 256> rung{};
  while (read(bell_.get(), rung.data(), rung.size()) == std::ssize(rung)) {
  }
}

RingPair::RingPair(Rings& rings) : rings_(rings), mine_(kHeadBytes + kRingBytes) {
  static_assert(sizeof(Head) <= kHeadBytes);
  Head* const head = new (mine_.data()) Head{};
  head->bell = rings_.to_bell_.get();
  head->bell_inode = rings_.inode_;
  rings_.pairs_.push_back(this);
}

RingPair::~RingPair() {
  std::erase(rings_.pairs_, this);
  my_head().taken.store(taken_ | kClosed);
}

RingPair::Head& RingPair::my_head() const { return *reinterpret_cast<Head*>(mine_.data()); }

const RingPair::Head& RingPair::their_head() const {
  return *reinterpret_cast<const Head*>(theirs_->bytes().data());
}

void RingPair::open(const wire::Segment& theirs) {
  auto mapped = std::make_unique<Mapping>(theirs, kMaxSegmentBytes);
  if (mapped->bytes().size() < kHeadBytes + kRingBytes) refuse_ring("is too short");
  const auto* const head = reinterpret_cast<const Head*>(mapped->bytes().data());
  their_bell_ = open_bell(theirs.pid(), head->bell, head->bell_inode);
  theirs_ = std::move(mapped);
  token_ = theirs.token();
}

// Writes to the ring; `written` of the head tells the other process later.
void RingPair::put(std::span<const std::byte> bytes) {
  std::byte* const ring = mine_.data() + kHeadBytes;
  const size_t at = written_ % kRingBytes;
  const size_t first = std::min(bytes.size(), kRingBytes - at);
  if (first != 0) std::memcpy(ring + at, bytes.data(), first);
  if (first != bytes.size()) std::memcpy(ring, bytes.data() + first, bytes.size() - first);
  written_ += bytes.size();
}

void RingPair::get(std::span<std::byte> bytes) {
  const std::byte* const ring = theirs_->bytes().data() + kHeadBytes;
  const size_t at = taken_ % kRingBytes;
  const size_t first = std::min(bytes.size(), kRingBytes - at);
  if (first != 0) std::memcpy(bytes.data(), ring + at, first);
  if (first != bytes.size()) std::memcpy(bytes.data() + first, ring, bytes.size() - first);
  taken_ += bytes.size();
}

bool RingPair::send(int connection, const Message& message) {
  PP_ASSERT(is_open());
  if (full_) return false;
  const std::vector<zmq::message_t> frames = encode(message);
  size_t bytes = sizeof(MessageHead) + frames.size() * sizeof(uint32_t);
  for (const zmq::message_t& frame : frames) bytes += frame.size();
  const uint64_t unread = written_ - their_head().taken.load(std::memory_order_acquire);
  if (frames.size() > kMaxFrames || bytes > kMaxMessageBytes || unread > kRingBytes - bytes) {
    full_ = true;
    my_head().taken.store(taken_ | kClosed);
    return false;
  }
  const MessageHead head{static_cast<uint32_t>(frames.size()), static_cast<uint32_t>(connection)};
  put(std::as_bytes(std::span(&head, 1)));
  for (const zmq::message_t& frame : frames) {
    const auto size = static_cast<uint32_t>(frame.size());
    put(std::as_bytes(std::span(&size, 1)));
  }
  for (const zmq::message_t& frame : frames) {
    put({static_cast<const std::byte*>(frame.data()), frame.size()});
  }
  my_head().written.store(written_);
  ring_if_asleep();
  return true;
}

// Either this process sees that the other one sleeps, or that one sees the message before it sleeps:
// `written` and `sleeps` are written and read in one order for all (seq_cst).
void RingPair::ring_if_asleep() {
  const uint32_t sleeps = their_head().sleeps.load();
  if (sleeps % 2 == 0 || sleeps == rung_) return;
  rung_ = sleeps;
  const char ring = 0;
  // a full pipe wakes its reader, too
  [[maybe_unused]] const ssize_t wrote = write(their_bell_.get(), &ring, 1);
}

bool RingPair::has_message() const { return is_open() && their_head().written.load() != taken_; }

std::optional<RingPair::Received> RingPair::receive() {
  if (!has_message()) return std::nullopt;
  const uint64_t until = their_head().written.load(std::memory_order_acquire);
  if (until - taken_ > kRingBytes) refuse_ring("was written beyond its end");
  const auto take = [&](std::span<std::byte> bytes) {
    if (bytes.size() > until - taken_) refuse_ring("ends within a message");
    get(bytes);
  };
  MessageHead head{};
  take(std::as_writable_bytes(std::span(&head, 1)));
  if (head.frames == 0 || head.frames > kMaxFrames || head.connection > 255) {
    refuse_ring("has a message of " + std::to_string(head.frames) + " frames on connection " +
                std::to_string(head.connection));
  }
  std::vector<uint32_t> sizes(head.frames);
  take(std::as_writable_bytes(std::span(sizes)));
  std::vector<zmq::message_t> frames;
  frames.reserve(sizes.size());
  for (const uint32_t size : sizes) {
    if (size > kMaxMessageBytes) refuse_ring("has a frame of " + std::to_string(size) + " bytes");
    zmq::message_t& frame = frames.emplace_back(size);
    take({static_cast<std::byte*>(frame.data()), size});
  }
  my_head().taken.store(full_ ? taken_ | kClosed : taken_, std::memory_order_release);
  Decoded decoded = decode(std::move(frames));
  if (!decoded.message) refuse_ring("has a message that is none: " + decoded.why);
  return Received{static_cast<int>(head.connection), std::move(*decoded.message)};
}

void RingPair::count_sleep() { my_head().sleeps.fetch_add(1); }

}  // namespace pushpull
