#include "cli/link/proxy_connection.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"

namespace pushpull {
namespace {

constexpr size_t kMaxFreeBlocks = 64;

}  // namespace

BlockPool::Block BlockPool::take() {
  if (free_.empty()) {
    return Block(new std::byte[kBlockBytes]);  // not make_unique, which zeroes the block
  }
  Block block = std::move(free_.back());
  free_.pop_back();
  return block;
}

void BlockPool::give_back(Block block) {
  if (free_.size() < kMaxFreeBlocks) {
    free_.push_back(std::move(block));
  }
}

ByteQueue::~ByteQueue() { clear(); }

std::span<std::byte> ByteQueue::space() {
  if (blocks_.empty() || end_ == BlockPool::kBlockBytes) {
    blocks_.push_back(pool_.take());
    end_ = 0;
  }
  return {blocks_.back().get() + end_, BlockPool::kBlockBytes - end_};
}

void ByteQueue::commit(size_t bytes) {
  end_ += bytes;
  size_ += bytes;
  if (size_ == 0) {
    clear();  // an idle connection keeps no block
  }
}

std::span<std::byte> ByteQueue::front() {
  if (size_ == 0) {
    return {};
  }
  const size_t end = blocks_.size() == 1 ? end_ : BlockPool::kBlockBytes;
  return {blocks_.front().get() + begin_, end - begin_};
}

void ByteQueue::pop(size_t bytes) {
  PP_ASSERT(bytes <= size_);
  size_ -= bytes;
  while (bytes > 0) {
    const size_t end = blocks_.size() == 1 ? end_ : BlockPool::kBlockBytes;
    const size_t part = std::min(bytes, end - begin_);
    begin_ += part;
    bytes -= part;
    if (begin_ == BlockPool::kBlockBytes) {
      drop_front();
    }
  }
  if (size_ == 0) {
    clear();
  }
}

void ByteQueue::drop_front() {
  pool_.give_back(std::move(blocks_.front()));
  blocks_.pop_front();
  begin_ = 0;
}

void ByteQueue::clear() {
  while (!blocks_.empty()) {
    drop_front();
  }
  begin_ = 0;
  end_ = 0;
  size_ = 0;
}

}  // namespace pushpull
