// One connection through the proxy: its two sockets, and the bytes in flight in each direction.
// Plain data; used by the proxy's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cli/link/link_model.h"
#include "common/base/unique_fd.h"

namespace pushpull {

// Keeps a few free blocks for reuse and frees the others.
class BlockPool {
 public:
  static constexpr size_t kBlockBytes = size_t{256} << 10;
  using Block = std::unique_ptr<std::byte[]>;

  Block take();
  void give_back(Block block);

 private:
  std::vector<Block> free_;
};

// A FIFO queue of bytes in reusable blocks: it grows with its contents and releases memory when it
// shrinks. One thread.
class ByteQueue {
 public:
  explicit ByteQueue(BlockPool& pool) : pool_(pool) {}
  ~ByteQueue();
  ByteQueue(const ByteQueue&) = delete;
  ByteQueue& operator=(const ByteQueue&) = delete;

  // Returns writable space for the next bytes, at least one; commit() appends those written.
  std::span<std::byte> space();
  void commit(size_t bytes);
  // Returns the oldest contiguous bytes; empty if the queue is empty.
  std::span<std::byte> front();
  void pop(size_t bytes);
  void clear();
  size_t size() const { return size_; }

 private:
  void drop_front();

  BlockPool& pool_;
  std::deque<BlockPool::Block> blocks_;
  size_t begin_ = 0;  // offset in the first block
  size_t end_ = 0;    // offset in the last block
  size_t size_ = 0;
};

struct Side {
  UniqueFd fd;
  bool readable = false;  // until a read returns EAGAIN: events report only changes (EPOLLET)
  bool writable = false;
  bool read_all = false;  // its end of stream was read
  bool broken = false;    // by a socket error
};

enum class End { kFin, kReset };

// All bytes in flight from one side to the other.
struct Flow {
  explicit Flow(BlockPool& pool) : bytes(pool) {}
  ByteQueue bytes;
  DelayLine line;
  std::optional<End> end;  // follows the bytes
  int64_t end_due_us = 0;
  bool finished = false;  // the end was passed on
  int64_t timer_us = -1;  // the earliest timer that is set; -1 = none
};

struct Connection {
  Connection(uint64_t number, BlockPool& pool) : id(number), flows{Flow(pool), Flow(pool)} {}
  uint64_t id;
  std::array<Side, 2> sides;  // the connecting side, the listening side
  std::array<Flow, 2> flows;  // up: from sides[0]; down: from sides[1]
  bool connecting = true;
  int64_t connect_by_us = 0;
  bool listed = false;  // in active_
};

}  // namespace pushpull
