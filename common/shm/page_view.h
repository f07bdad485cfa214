// Maps scattered shared pages side by side: a vector with pieces in buffers of different owners
// reads as one contiguous range without a copy. A piece that cannot be mapped gets memory of the
// view's own. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "common/shm/segment.h"

namespace pushpull {

class PageView {
 public:
  // Returns true if a vector of `bytes` bytes in pieces of piece_bytes (the last may be shorter)
  // can be viewed: pieces must be whole pages, and at most kMaxPieces.
  static bool possible(size_t bytes, size_t piece_bytes);
  // Every piece starts as own memory. Throws Error(kFailed) if the system has no such address
  // range.
  PageView(size_t bytes, size_t piece_bytes);

  const float* floats() const { return reinterpret_cast<const float*>(pages_.first()); }

  // Maps the piece to `bytes`; later writes there are visible. Keeps `owner` alive as long as the
  // piece is mapped. Returns false and changes nothing if the bytes are not shared memory or do not
  // start at a page. Throws Error(kFailed) if they cannot be mapped here.
  bool show(size_t piece, const std::shared_ptr<const void>& owner,
            std::span<const std::byte> bytes);
  // Gives the piece own memory to write to. The contents of a mapped piece are lost.
  float* own(size_t piece);

  // Returns the number of pieces that are mapped to their owners' memory.
  size_t shown() const { return shown_; }

  // Each piece is an entry in the process's table of mappings, of which Linux allows 65,530
  // (vm.max_map_count).
  static constexpr size_t kMaxPieces = 4096;

 private:
  struct Piece {
    std::shared_ptr<const void> owner;  // null for own memory
    const std::byte* first = nullptr;   // address in the owner's mapping
  };

  std::byte* at(size_t piece) const { return pages_.first() + piece * piece_bytes_; }
  size_t bytes_of(size_t piece) const;

  const size_t bytes_;
  const size_t piece_bytes_;
  MappedPages pages_;
  std::vector<Piece> pieces_;
  size_t shown_ = 0;
};

}  // namespace pushpull
