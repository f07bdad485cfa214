#include "common/base/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "common/base/error.h"
#include "common/base/simd.h"

namespace pushpull {

namespace {

using Block = std::array<uint32_t, 4>;

// Philox4x32-10 as in Random123 (Salmon et al., SC 2011): ten rounds of two 32 x 32 -> 64 bit
// products; between rounds the key grows by the golden ratio and sqrt(3) - 1.
PUSHPULL_INLINE Block philox_block(Block c, uint32_t key0, uint32_t key1) {
#pragma GCC unroll 10
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
  const Block block = philox(seed, stream, index, i / 4);
  const size_t pair = i % 4 / 2 * 2;
  // In double: rounding to float hides differences of math libraries in the last bit.
  const double u = (static_cast<double>(block[pair]) + 1.0) * 0x1p-32;  // in (0, 1]
  const double angle = 2.0 * std::numbers::pi * (static_cast<double>(block[pair + 1]) * 0x1p-32);
  const double radius = std::sqrt(-2.0 * std::log(u));
  return static_cast<float>(radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)));
}

uint64_t random_key(uint64_t seed, int64_t step, int64_t micro_batch, uint32_t place) {
  const auto word = [](const std::array<uint32_t, 4>& a) { return (uint64_t{a[0]} << 32) | a[1]; };
  const uint64_t of_step =
      word(philox(seed, RandomStream::kDropout, place, static_cast<uint64_t>(step)));
  return word(philox(of_step, RandomStream::kDropout, 0, static_cast<uint64_t>(micro_batch)));
}

// One loop iteration computes one block, so the compiler computes as many blocks at once as a vector
// has lanes.
PUSHPULL_SIMD void fill_dropout_words(uint64_t key, uint64_t first, int64_t blocks, uint32_t* out) {
  const auto key0 = static_cast<uint32_t>(key);
  const auto key1 = static_cast<uint32_t>(key >> 32);
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < blocks; ++i) {
    const uint64_t counter = first + static_cast<uint64_t>(i);
    const Block words =
        philox_block({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0,
                      static_cast<uint32_t>(RandomStream::kDropout)},
                     key0, key1);
    for (size_t k = 0; k < 4; ++k) out[4 * i + static_cast<int64_t>(k)] = words[k];
  }
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
