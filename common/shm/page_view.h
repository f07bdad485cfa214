// Shared pages that lie apart, side by side in one range of addresses: a vector in pieces, whose
// owners have written them where they lie, reads as one without a copy. A piece that cannot be
// shown so is memory of the view's own. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "common/shm/segment.h"

namespace pushpull {

class PageView {
 public:
  // A vector of `bytes` in pieces of piece_bytes, the last of which may be shorter, can be viewed:
  // pieces are whole pages, and not too many.
  static bool possible(size_t bytes, size_t piece_bytes);
  // Every piece is memory of its own. Throws Error(kFailed) where the system has no such range.
  PageView(size_t bytes, size_t piece_bytes);

  const float* floats() const { return reinterpret_cast<const float*>(pages_.first()); }

  // From here on this piece is `bytes`, as many as it has, whatever is written there later; `owner`
  // is kept as long. False: they are no shared memory, or do not begin with a page; nothing
  // changes.
  bool show(size_t piece, const std::shared_ptr<const void>& owner,
            std::span<const std::byte> bytes);
  // From here on this piece is memory of its own, to be written. The contents of one that was shown
  // are gone.
  float* own(size_t piece);

  // Pieces that lie with others.
  size_t shown() const { return shown_; }

  // Each is an entry in the table of this process's mappings, of which Linux allows 65,530
  // (vm.max_map_count).
  static constexpr size_t kMostPieces = 4096;

 private:
  struct Piece {
    std::shared_ptr<const void> owner;  // null: memory of its own
    const std::byte* first = nullptr;   // where it lies with the owner
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
