// Seeded mutations of a small IDX file: each is read or refused, and none allocates more memory
// than the file justifies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "common/base/error.h"
#include "datasets/idx_file.h"
#include "tests/datasets/allocations.h"
#include "tests/datasets/idx_writer.h"

namespace pushpull {
namespace {

constexpr int kMutations = 20000;
constexpr size_t kMaxBytes = size_t{256} << 10;  // the reader begins with 64 KiB

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string mutate(std::string bytes) {
    for (uint64_t n = 1 + below(4); n > 0; --n) mutate_once(bytes);
    return bytes;
  }

 private:
  uint64_t below(uint64_t n) { return random_() % n; }

  void mutate_once(std::string& bytes) {
    if (bytes.empty()) return;
    // half of the edits hit the header
    const size_t at =
        below(2) == 0 ? below(std::min<size_t>(bytes.size(), 16)) : below(bytes.size());
    switch (below(6)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 2:
        bytes[at] = static_cast<char>(below(2) == 0 ? 0xff : 0x00);
        break;
      case 3:
        bytes.resize(at);
        break;
      case 4:
        bytes.insert(at, 1 + below(8), static_cast<char>(below(256)));
        break;
      default:
        bytes.erase(at, 1 + below(8));
    }
  }

  std::mt19937_64 random_;
};

enum class Outcome { kRead, kRefused };

Outcome parse(const std::string& bytes, bool gzip) {
  std::istringstream in(bytes);
  reset_largest_allocation();
  Outcome outcome = Outcome::kRead;
  try {
    const IdxArray array = parse_idx(in, bytes.size(), gzip, "fuzz");
    uint64_t product = 1;
    for (const int64_t dim : array.dims) product *= static_cast<uint64_t>(dim);
    EXPECT_EQ(product, array.data.size());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kData);
    EXPECT_THAT(error.what(), testing::HasSubstr("fuzz"));
    outcome = Outcome::kRefused;
  }
  EXPECT_LE(largest_allocation(), kMaxBytes);
  return outcome;
}

std::string small_file() {
  std::string pixels;
  for (int i = 0; i < 5 * 4 * 3; ++i) pixels += static_cast<char>(i * 7);
  return idx_bytes({5, 4, 3}, pixels);
}

struct Tally {
  int read = 0;
  int refused = 0;
  void add(Outcome outcome) { ++(outcome == Outcome::kRead ? read : refused); }
};

TEST(IdxFuzz, PlainFilesAreReadOrRefused) {
  Mutator mutator(1);
  Tally tally;
  for (int n = 0; n < kMutations; ++n) tally.add(parse(mutator.mutate(small_file()), false));
  EXPECT_GT(tally.read, 100);  // a changed pixel is valid
  EXPECT_GT(tally.refused, 1000);
}

TEST(IdxFuzz, GzipFilesAreReadOrRefused) {
  Mutator mutator(2);
  Tally tally;
  const std::string packed = gzip_bytes(small_file());
  for (int n = 0; n < kMutations; ++n) tally.add(parse(mutator.mutate(packed), true));
  EXPECT_GT(tally.read, 0);  // the time stamp of a gzip header may be anything
  EXPECT_GT(tally.refused, 1000);
}

TEST(IdxFuzz, GzipOfDamagedFilesIsReadOrRefused) {
  Mutator mutator(3);
  Tally tally;
  for (int n = 0; n < kMutations; ++n) {
    tally.add(parse(gzip_bytes(mutator.mutate(small_file())), true));
  }
  EXPECT_GT(tally.read, 100);
  EXPECT_GT(tally.refused, 1000);
}

TEST(IdxFuzz, StopsInflatingAfterTheAnnouncedBytes) {
  // 64 MiB of zeros behind a header that announces 12 bytes
  const std::string bomb = gzip_bytes(idx_bytes({12}, std::string(size_t{64} << 20, '\0')));
  EXPECT_LT(bomb.size(), size_t{1} << 20);
  EXPECT_EQ(parse(bomb, true), Outcome::kRefused);
}

TEST(IdxFuzz, AForgedHeaderAllocatesNoMemory) {
  const std::string forged = idx_bytes({0x7fffffff, 1000}, "few bytes");
  EXPECT_EQ(parse(forged, false), Outcome::kRefused);
  EXPECT_EQ(parse(gzip_bytes(forged), true), Outcome::kRefused);
}

}  // namespace
}  // namespace pushpull
