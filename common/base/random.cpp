#include "common/base/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "common/base/error.h"

namespace pushpull {

namespace {

using Block = std::array<uint32_t, 4>;

// Philox4x32-10 as in Random123 (Salmon et al., SC 2011): ten rounds of two 32 x 32 -> 64 bit
// products; between rounds the key grows by the golden ratio and sqrt(3) - 1.
inline Block philox_block(Block c, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(product1 >> 32) ^ c[1] ^ key0, static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ c[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return c;
}

// Keeps the upper 24 bits: a float represents each such value exactly.
inline float to_unit(uint32_t x) { return static_cast<float>(x >> 8) * 0x1p-24F; }

// 2u - 1 is exact; only the product rounds.
inline float to_symmetric(uint32_t x, float bound) { return (2.0F * to_unit(x) - 1.0F) * bound; }

// Returns two independent standard normal values, by Box-Muller, from half 0 or 1 of a block.
std::array<float, 2> normal_pair(const Block& block, uint64_t half) {
  // In double: rounding to float hides differences of math libraries in the last bit.
  const double u = (static_cast<double>(block[2 * half]) + 1.0) * 0x1p-32;  // in (0, 1]
  const double angle =
      2.0 * std::numbers::pi * (static_cast<double>(block[2 * half + 1]) * 0x1p-32);
  const double radius = std::sqrt(-2.0 * std::log(u));
  return {static_cast<float>(radius * std::cos(angle)),
          static_cast<float>(radius * std::sin(angle))};
}

}  // namespace

std::array<uint32_t, 4> philox(uint64_t seed, RandomStream stream, uint32_t index,
                               uint64_t counter) {
  return philox_block({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), index,
                       static_cast<uint32_t>(stream)},
                      static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

float uniform01(uint64_t seed, RandomStream stream, uint32_t index, uint64_t i) {
  return to_unit(philox(seed, stream, index, i / 4)[i % 4]);
}

float normal(uint64_t seed, RandomStream stream, uint32_t index, uint64_t i) {
  return normal_pair(philox(seed, stream, index, i / 4), i % 4 / 2)[i % 2];
}

void fill_uniform(uint64_t seed, RandomStream stream, uint32_t index, uint64_t first, float bound,
                  uint64_t count, float* out) {
  while (count > 0) {
    const Block block = philox(seed, stream, index, first / 4);
    const uint64_t place = first % 4;
    const uint64_t here = std::min<uint64_t>(4 - place, count);
    for (uint64_t k = 0; k < here; ++k) out[k] = to_symmetric(block[place + k], bound);
    first += here;
    count -= here;
    out += here;
  }
}

void fill_normal(uint64_t seed, RandomStream stream, uint32_t index, uint64_t first,
                 float deviation, uint64_t count, float* out) {
  const uint64_t end = first + count;
  for (uint64_t i = first; i < end; i = (i / 4 + 1) * 4) {
    const Block block = philox(seed, stream, index, i / 4);
    for (uint64_t pair = i / 2; pair < i / 4 * 2 + 2 && 2 * pair < end; ++pair) {
      const std::array<float, 2> values = normal_pair(block, pair % 2);
      for (uint64_t k = std::max(2 * pair, first); k < std::min(2 * pair + 2, end); ++k) {
        out[k - first] = deviation * values[k % 2];
      }
    }
  }
}

std::vector<int64_t> permutation(uint64_t seed, uint32_t epoch, int64_t n) {
  PP_ASSERT(n >= 0 && n <= int64_t{1} << 32);
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  // Position i (counting down) swaps with a uniform j in 0..i. A 32-bit x becomes j = x * (i + 1) /
  // 2^32. If the low half of the product is below 2^32 mod (i + 1), x would favour some j and is
  // drawn again (Lemire, arXiv 1805.10941). The counters of the blocks of four draws are i, i +
  // 2^32, i + 2 * 2^32, ...
  for (int64_t i = n - 1; i > 0; --i) {
    const auto choices = static_cast<uint64_t>(i) + 1;
    const uint64_t unfair = (uint64_t{1} << 32) % choices;
    uint64_t product = 0;
    bool fair = false;
    for (uint64_t attempt = 0; !fair; ++attempt) {
      const Block block = philox(seed, RandomStream::kPermutation, epoch,
                                 static_cast<uint64_t>(i) + (attempt << 32));
      for (size_t k = 0; k < block.size() && !fair; ++k) {
        product = choices * block[k];
        fair = static_cast<uint32_t>(product) >= unfair;
      }
    }
    std::swap(order[static_cast<size_t>(i)], order[product >> 32]);
  }
  return order;
}

}  // namespace pushpull
