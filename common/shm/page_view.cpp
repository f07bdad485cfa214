#include "common/shm/page_view.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "common/base/error.h"

namespace pushpull {

namespace {

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t whole_pages(size_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

size_t pieces_of(size_t bytes, size_t piece_bytes) {
  return (bytes + piece_bytes - 1) / piece_bytes;
}

[[noreturn]] void fail(const std::string& what, size_t bytes) {
  throw Error(ErrorCode::kFailed, "[shm] " + std::to_string(bytes) + " bytes cannot be " + what +
                                      ": " + std::strerror(errno) + "; transport = tcp avoids it");
}

// Maps private memory: pages that are never written take no memory.
std::byte* map_own(void* at, size_t bytes, int how) {
  void* first = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | how, -1, 0);
  if (first == MAP_FAILED) fail("mapped", bytes);
  return static_cast<std::byte*>(first);
}

}  // namespace

bool PageView::possible(size_t bytes, size_t piece_bytes) {
  return piece_bytes > 0 && piece_bytes % page_bytes() == 0 &&
         pieces_of(bytes, piece_bytes) <= kMaxPieces;
}

PageView::PageView(size_t bytes, size_t piece_bytes)
    : bytes_(bytes),
      piece_bytes_(piece_bytes),
      pages_(map_own(nullptr, whole_pages(bytes), 0), whole_pages(bytes)),
      pieces_(pieces_of(bytes, piece_bytes)) {
  PP_ASSERT(possible(bytes, piece_bytes));
}

size_t PageView::bytes_of(size_t piece) const {
  PP_ASSERT(piece < pieces_.size());
  return std::min(piece_bytes_, bytes_ - piece * piece_bytes_);
}

// mremap(2) with an old size of 0 maps the same shared pages a second time, and fails for private
// ones. Maps them elsewhere first: mapping over the old piece would lose it if this fails.
bool PageView::show(size_t piece, const std::shared_ptr<const void>& owner,
                    std::span<const std::byte> bytes) {
  PP_ASSERT(owner && bytes.size() == bytes_of(piece));
  Piece& known = pieces_[piece];
  if (known.owner == owner && known.first == bytes.data()) return true;
  if (reinterpret_cast<uintptr_t>(bytes.data()) % page_bytes() != 0) return false;
  const size_t size = whole_pages(bytes.size());
  void* again = mremap(const_cast<std::byte*>(bytes.data()), 0, size, MREMAP_MAYMOVE);
  if (again == MAP_FAILED) return false;
  if (mremap(again, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at(piece)) == MAP_FAILED) {
    fail("mapped side by side", size);
  }
  if (!known.owner) ++shown_;
  known = {owner, bytes.data()};
  return true;
}

float* PageView::own(size_t piece) {
  const size_t bytes = bytes_of(piece);
  Piece& known = pieces_[piece];
  if (known.owner) {
    map_own(at(piece), whole_pages(bytes), MAP_FIXED);
    known = {};
    --shown_;
  }
  return reinterpret_cast<float*>(at(piece));
}

}  // namespace pushpull
