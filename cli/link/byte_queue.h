// Bytes on their way, first in, first out, in blocks that are used again: the queue grows with what
// waits and gives its memory back. One thread.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace pushpull {

// Blocks that wait for their next use; at most a few, the others are freed.
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

  // Room for the next bytes, at least one; commit() says how many came.
  std::span<std::byte> space();
  void commit(size_t bytes);
  // The oldest bytes that lie in one piece; empty: none.
  std::span<std::byte> front();
  void pop(size_t bytes);
  void clear();
  size_t size() const { return size_; }

 private:
  void drop_front();

  BlockPool& pool_;
  std::deque<BlockPool::Block> blocks_;
  size_t begin_ = 0;  // in the first block
  size_t end_ = 0;    // in the last block
  size_t size_ = 0;
};

}  // namespace pushpull
