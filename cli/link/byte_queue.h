// A FIFO queue of bytes in reusable blocks: it grows with its contents and releases memory when it
// shrinks. One thread.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <vector>

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

}  // namespace pushpull
