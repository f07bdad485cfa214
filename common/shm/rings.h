// Messages between two processes of one host through shared memory: each process writes a ring that
// the other one reads, and rings the other one's bell if it sleeps. A push and its answer then wake
// two threads; over ZeroMQ they wake six, four of them to move bytes. What does not fit goes over
// the socket. Each process writes only its own segment, and checks what it reads in the other one's.
// One thread.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "common/base/unique_fd.h"
#include "common/net/message.h"
#include "common/shm/segment.h"
#include "common/shm/spinning.h"

namespace pushpull {

class RingPair;

// A connection that the thread of Rings reads by itself, beside the rings (common/direct). One thread.
class MessageSource {
 public:
  virtual ~MessageSource() = default;
  // Moves what can be moved without waiting. Returns whether `wait` is over for this source: a message
  // waits, or the source has ended.
  virtual bool look() = 0;
  // Returns the descriptor and the events after which `look` may find more.
  virtual pollfd poll_item() const = 0;
};

// The ring pairs of one thread, with the bell that other processes ring when it sleeps: a pipe, since
// that can be waited for together with sockets, unlike a futex. The pairs must not outlive it.
class Rings {
 public:
  // look: longest time that `wait` goes without a look at its items. Throws Error(kFailed) if the
  // process may have no more descriptors.
  explicit Rings(Wait wait, std::chrono::milliseconds look = kLook);

  // Adds or removes a source, which must not outlive this.
  void add(MessageSource& source) { sources_.push_back(&source); }
  void remove(MessageSource& source) { std::erase(sources_, &source); }

  // Returns whether a message waits in some pair or source.
  bool has_message();
  // Waits at most `timeout_ms` until a message has arrived in a pair, or one of `items` is ready. May
  // not look at `items` if a message is there, or waits, for at most `look`. Spins before it sleeps, as
  // long as Spinning says.
  void wait(std::vector<zmq::pollitem_t>& items, int timeout_ms);
  // Returns whether `wait` has looked at its items less than `look` ago and found no event. To read a
  // socket in vain takes two system calls. False every 20 ms: what reads a socket may have work that no
  // event shows, such as a second connection or one that has ended.
  bool sockets_are_idle() const;
  // Ends that. Call it after a send over one of the sockets: the send may notice what has arrived, and
  // the socket's descriptor then says no more.
  void socket_used() { idle_ = false; }
  const Spinning& spinning() const { return spinning_; }
  // Marks the messages that are there now, for RingPair::has_marked.
  void mark();

 private:
  friend class RingPair;
  static constexpr std::chrono::milliseconds kLook{1};
  static constexpr std::chrono::milliseconds kRead{20};

  bool pairs_have_message() const;
  bool sources_have_message();
  bool spin(std::vector<zmq::pollitem_t>& items, bool look, int timeout_ms);
  bool wait_briefly(const std::vector<zmq::pollitem_t>& items);
  void list_descriptors(const std::vector<zmq::pollitem_t>& items);
  bool descriptors_have_event(int timeout_ms);
  bool wait_for(std::vector<zmq::pollitem_t>& items, int timeout_ms);
  void count_sleep();
  void clear_bell();

  const std::chrono::milliseconds look_;
  Spinning spinning_;
  UniqueFd bell_;
  UniqueFd to_bell_;                              // opened by other processes
  uint64_t inode_ = 0;                            // of the pipe
  std::chrono::steady_clock::time_point looked_;  // at the items last
  bool idle_ = false;                             // they had no event
  // when `sockets_are_idle` was false last
  std::chrono::steady_clock::time_point read_ = std::chrono::steady_clock::now();
  std::vector<pollfd> polled_;  // kept for its memory
  std::vector<RingPair*> pairs_;
  std::vector<MessageSource*> sources_;
};

class RingPair {
 public:
  // Adds the pair to `rings`. Throws Error(kFailed) if there is no shared memory.
  explicit RingPair(Rings& rings);
  // From now on `send` of the other process returns false. What it has sent before is lost.
  ~RingPair();
  RingPair(const RingPair&) = delete;
  RingPair& operator=(const RingPair&) = delete;

  // Returns what the other process passes to `open`.
  const wire::Segment& description() const { return mine_.description(); }
  // Opens the other process's ring and bell. Throws Error(kProtocol) with the reason.
  void open(const wire::Segment& theirs);
  bool is_open() const { return theirs_ != nullptr; }
  // Returns whether it is open to this segment.
  bool is_open(const wire::Segment& theirs) const { return is_open() && token_ == theirs.token(); }

  // Writes the message; an open pair only. Returns false if it is too large or the ring is full.
  // Then all later calls return false, too, and soon those of the other process: messages on one way
  // arrive in order, and answers take the way of their questions.
  //   connection: a number that the receiver gets, 0 to 255.
  bool send(int connection, const Message& message);

  struct Received {
    int connection = 0;
    Message message;
  };
  // Returns whether a message waits. False if the pair is not open.
  bool has_message() const;
  // Returns whether a message waits that was there when the rings were marked.
  bool has_marked() const { return taken_ < marked_; }
  // Returns the next message, or nullopt if there is none. Throws Error(kProtocol) if the ring
  // holds something else; then destroy the pair.
  std::optional<Received> receive();

  static constexpr size_t kRingBytes = size_t{1} << 18;
  static constexpr size_t kMaxMessageBytes = kRingBytes / 4;

 private:
  friend class Rings;
  struct Head;

  Head& my_head() const;
  const Head& their_head() const;
  void put(std::span<const std::byte> bytes);
  void get(std::span<std::byte> bytes);
  void ring_if_asleep();
  // Counts the beginnings and ends of this thread's sleeps.
  void count_sleep();

  Rings& rings_;
  Segment mine_;
  std::unique_ptr<Mapping> theirs_;
  std::string token_;  // of theirs_
  UniqueFd their_bell_;
  uint64_t written_ = 0;  // bytes of all messages in this process's ring, from the start
  uint64_t taken_ = 0;    // the same of those read from the other one's
  uint64_t marked_ = 0;   // `taken_` after the marked messages
  uint32_t rung_ = 0;     // the other process's sleep that was ended last
  bool full_ = false;     // a message did not fit
};

}  // namespace pushpull
