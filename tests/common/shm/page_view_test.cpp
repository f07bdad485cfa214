#include "common/shm/page_view.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace pushpull {
namespace {

const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
constexpr int64_t kMax = int64_t{1} << 30;

// A segment in its owner, and the same segment mapped as in another process.
struct Peer {
  explicit Peer(size_t bytes)
      : segment(bytes), mapping(std::make_shared<const Mapping>(segment.description(), kMax)) {}
  void write(float value) {
    std::fill_n(reinterpret_cast<float*>(segment.data()), segment.bytes() / sizeof(float), value);
  }
  std::span<const std::byte> bytes(size_t offset, size_t size) const {
    return mapping->bytes().subspan(offset, size);
  }
  Segment segment;
  std::shared_ptr<const Mapping> mapping;
};

float value_at(const PageView& view, size_t byte) { return view.floats()[byte / sizeof(float)]; }

bool all_are(const PageView& view, size_t first, size_t bytes, float value) {
  const float* begin = view.floats() + first / sizeof(float);
  return std::all_of(begin, begin + bytes / sizeof(float), [&](float x) { return x == value; });
}

// Returns the line of /proc/self/maps for an address, with its permissions.
std::string mapped_from(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t first = 0;
    uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &first, &end) != 2) continue;
    const auto at = reinterpret_cast<uintptr_t>(address);
    if (first <= at && at < end) return line;
  }
  return "";
}

TEST(PageView, PiecesOfSeveralOwnersReadAsOneVector) {
  const size_t piece = 2 * page_bytes;
  const size_t total = 3 * piece + 12;  // the last piece is shorter
  Peer even(2 * piece);
  Peer odd(piece + 12);
  even.write(1.0F);
  odd.write(2.0F);
  PageView view(total, piece);
  EXPECT_TRUE(view.show(0, even.mapping, even.bytes(0, piece)));
  EXPECT_TRUE(view.show(1, odd.mapping, odd.bytes(0, piece)));
  EXPECT_TRUE(view.show(2, even.mapping, even.bytes(piece, piece)));
  EXPECT_TRUE(view.show(3, odd.mapping, odd.bytes(piece, 12)));
  EXPECT_EQ(view.shown(), 4U);
  EXPECT_TRUE(all_are(view, 0, piece, 1.0F));
  EXPECT_TRUE(all_are(view, piece, piece, 2.0F));
  EXPECT_TRUE(all_are(view, 2 * piece, piece, 1.0F));
  EXPECT_TRUE(all_are(view, 3 * piece, 12, 2.0F));
  // the view is no copy: it shows later writes
  odd.write(3.0F);
  EXPECT_TRUE(all_are(view, piece, piece, 3.0F));
  EXPECT_TRUE(all_are(view, 0, piece, 1.0F));
}

TEST(PageView, AShownPieceIsReadOnlyAndOutlivesItsOwner) {
  PageView view(2 * page_bytes, page_bytes);
  {
    Peer peer(page_bytes);
    peer.write(4.0F);
    ASSERT_TRUE(view.show(1, peer.mapping, peer.bytes(0, page_bytes)));
  }
  EXPECT_TRUE(all_are(view, page_bytes, page_bytes, 4.0F));
  const std::string line = mapped_from(view.floats() + page_bytes / sizeof(float));
  EXPECT_NE(line.find(" r--s "), std::string::npos) << line;
  EXPECT_NE(line.find("/memfd:pushpull"), std::string::npos) << line;
}

TEST(PageView, APieceCanBeShownFromAnotherSegment) {
  PageView view(page_bytes, page_bytes);
  Peer first(page_bytes);
  Peer second(page_bytes);
  first.write(1.0F);
  second.write(2.0F);
  const float* where = view.floats();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(view.show(0, first.mapping, first.bytes(0, page_bytes)));
    EXPECT_EQ(value_at(view, 8), 1.0F);
    ASSERT_TRUE(view.show(0, second.mapping, second.bytes(0, page_bytes)));
    EXPECT_EQ(value_at(view, 8), 2.0F);
  }
  EXPECT_EQ(view.floats(), where);
  EXPECT_EQ(view.shown(), 1U);
}

TEST(PageView, PrivateOrUnalignedMemoryIsNotShown) {
  PageView view(3 * page_bytes, page_bytes);
  view.own(0)[0] = 7.0F;
  // private memory of this process
  void* heap =
      mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(heap, MAP_FAILED);
  const auto owner = std::make_shared<const int>();
  EXPECT_FALSE(view.show(0, owner, {static_cast<const std::byte*>(heap), page_bytes}));
  munmap(heap, page_bytes);
  Peer peer(2 * page_bytes);
  EXPECT_FALSE(view.show(0, peer.mapping, peer.bytes(64, page_bytes)));
  EXPECT_EQ(value_at(view, 0), 7.0F);
  EXPECT_EQ(view.shown(), 0U);
}

TEST(PageView, APieceCanBecomePrivateMemoryAgain) {
  PageView view(2 * page_bytes, page_bytes);
  Peer peer(2 * page_bytes);
  peer.write(5.0F);
  ASSERT_TRUE(view.show(0, peer.mapping, peer.bytes(0, page_bytes)));
  ASSERT_TRUE(view.show(1, peer.mapping, peer.bytes(page_bytes, page_bytes)));
  float* own = view.own(0);
  EXPECT_EQ(own, view.floats());
  own[3] = 6.0F;
  EXPECT_EQ(view.own(0)[3], 6.0F);  // and keeps its values
  EXPECT_EQ(view.shown(), 1U);
  EXPECT_TRUE(all_are(view, page_bytes, page_bytes, 5.0F));
  ASSERT_TRUE(view.show(0, peer.mapping, peer.bytes(0, page_bytes)));
  EXPECT_TRUE(all_are(view, 0, 2 * page_bytes, 5.0F));
}

TEST(PageView, PiecesAreWholePagesAndLimitedInNumber) {
  EXPECT_TRUE(PageView::possible(100 * page_bytes + 4, page_bytes));
  EXPECT_TRUE(PageView::possible(PageView::kMaxPieces * page_bytes, page_bytes));
  EXPECT_FALSE(PageView::possible(PageView::kMaxPieces * page_bytes + 4, page_bytes));
  EXPECT_FALSE(PageView::possible(100 * page_bytes, page_bytes + page_bytes / 2));
  EXPECT_FALSE(PageView::possible(100 * page_bytes, 0));
}

TEST(PageView, TheMaximalNumberOfPiecesCanBeShown) {
  const size_t bytes = PageView::kMaxPieces * page_bytes;
  Peer peer(bytes);
  peer.write(1.0F);
  // adjacent pieces are apart in the segment, so each needs a mapping of its own; two views, as in
  // a worker
  PageView a(bytes, page_bytes);
  PageView b(bytes, page_bytes);
  for (size_t i = 0; i < PageView::kMaxPieces; ++i) {
    const size_t from = (PageView::kMaxPieces - 1 - i) * page_bytes;
    ASSERT_TRUE(a.show(i, peer.mapping, peer.bytes(from, page_bytes)));
    ASSERT_TRUE(b.show(i, peer.mapping, peer.bytes(from, page_bytes)));
  }
  EXPECT_TRUE(all_are(a, 0, bytes, 1.0F));
  EXPECT_TRUE(all_are(b, 0, bytes, 1.0F));
}

}  // namespace
}  // namespace pushpull
