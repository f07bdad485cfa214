// A connection over TCP that the thread that computes reads and writes by itself, beside a data
// connection of ZeroMQ: bytes are received where they stay, and no I/O thread is woken on the way.
// It carries the messages of a ring (common/shm/rings.h), in the same order of bytes: small ones,
// while few of them wait. What does not fit goes over ZeroMQ, whose threads move large messages at
// once. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/base/unique_fd.h"
#include "common/net/message.h"
#include "common/shm/rings.h"

namespace pushpull {

class DirectConnection final : public MessageSource {
 public:
  // socket: connected, does not block, and proven on both sides (direct_door.h). Adds the connection
  // to `rings`.
  DirectConnection(Rings& rings, UniqueFd socket);
  ~DirectConnection() override;
  DirectConnection(const DirectConnection&) = delete;
  DirectConnection& operator=(const DirectConnection&) = delete;

  // Sends the message, or keeps what the socket does not take for `look`. Returns false if it is too
  // large, or too much waits. Then all later calls return false, too, and soon those of the other
  // process: answers take the way of their questions.
  //   connection: a number that the receiver gets, 0 to 255.
  bool send(int connection, const Message& message);
  // Returns the next message, or nullopt if there is none. Throws Error(kProtocol) if the bytes are
  // no message; then destroy the connection.
  std::optional<RingPair::Received> receive();
  // Returns whether nothing moves any more: the connection is lost, or messages did not fit and all
  // earlier ones have been sent and received. Then destroy it.
  bool is_over() const { return !ready_ && (lost_ || (closed_ && unsent_.empty())); }
  // Returns whether the other process or the network has closed it.
  bool is_lost() const { return lost_ && !closed_; }

  bool look() override;
  pollfd poll_item() const override;

  // A message, and all messages that wait to be sent.
  static constexpr size_t kMaxMessageBytes = size_t{2} << 20;
  static constexpr size_t kMaxUnsentBytes = size_t{3} << 20;

 private:
  // A message that waits: what precedes its payloads, and their memory.
  struct Unsent {
    std::vector<std::byte> head;
    std::vector<Payload> payloads;
    size_t bytes = 0;
    size_t sent = 0;
  };
  enum class Part { kCounts, kSizes, kHeader, kPayloads };

  void flush();
  void write_no_more();
  bool read();
  bool fill(std::span<std::byte> to);
  bool read_part();
  std::shared_ptr<float[]> memory_for(size_t floats);
  void begin_payload();
  void finish();
  void set_lost();

  Rings& rings_;
  UniqueFd socket_;
  bool lost_ = false;
  bool full_ = false;    // this process writes no more messages
  bool closed_ = false;  // the other one writes no more
  std::deque<Unsent> unsent_;
  size_t unsent_bytes_ = 0;
  std::optional<std::string> bad_;  // why the bytes are no message
  std::optional<RingPair::Received> ready_;

  // The message that arrives.
  Part part_ = Part::kCounts;
  size_t have_ = 0;  // bytes of the part
  std::vector<uint32_t> counts_;
  std::vector<uint32_t> sizes_;
  std::vector<std::byte> header_;
  std::vector<Payload> payloads_;
  std::span<std::byte> payload_;  // the last of payloads_
  std::vector<BufferPool> pools_;
  // Bytes that came with others before them.
  std::vector<std::byte> ahead_;
  size_t ahead_begin_ = 0;
  size_t ahead_end_ = 0;
};

}  // namespace pushpull
