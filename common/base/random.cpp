#include "common/base/random.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/base/error.h"
#include "common/base/simd.h"

namespace pushpull {

namespace {

using Block = std::array<uint32_t, 4>;

constexpr int kRounds = PhiloxBlock::kRounds;
constexpr uint32_t kFactor0 = PhiloxBlock::kFactor0;
constexpr uint32_t kFactor1 = PhiloxBlock::kFactor1;
constexpr uint32_t kGrowth0 = PhiloxBlock::kGrowth0;
constexpr uint32_t kGrowth1 = PhiloxBlock::kGrowth1;

#if defined(__x86_64__)
// Blocks of following counters, one per 64-bit lane. A word is the lower half of its lane; the
// products ignore the upper half, which may hold anything. The even lanes hold the first half of the
// counters and the odd lanes the second, so that interleaving neighbours writes whole blocks in
// order. There is one function per instruction set, because the compiler does not find the product
// of lower halves by itself.
using Words8 [[gnu::vector_size(64)]] = uint64_t;
using Words4 [[gnu::vector_size(32)]] = uint64_t;

struct RoundKeys {
  explicit RoundKeys(uint64_t key) {
    for (uint32_t i = 0; i < kRounds; ++i) {
      first[i] = static_cast<uint32_t>(key) + i * kGrowth0;
      second[i] = static_cast<uint32_t>(key >> 32) + i * kGrowth1;
    }
  }
  uint64_t first[kRounds];
  uint64_t second[kRounds];
};

template <class Words>
PUSHPULL_INLINE void start_lanes(const Words& counter, Words (&c)[4]) {
  c[0] = counter;
  c[1] = counter >> 32;
  c[2] = counter ^ counter;
  c[3] = c[2] + static_cast<uint64_t>(RandomStream::kDropout);
}

template <class Words>
PUSHPULL_INLINE void mix_lanes(const Words& product0, const Words& product1, uint64_t key0,
                               uint64_t key1, Words (&c)[4]) {
  c[0] = (product1 >> 32) ^ c[1] ^ key0;
  c[2] = (product0 >> 32) ^ c[3] ^ key1;
  c[1] = product1;
  c[3] = product0;
}

// Puts two words into each lane.
template <class Words>
PUSHPULL_INLINE void pair_lanes(const Words (&c)[4], Words& first, Words& second) {
  first = (c[0] & 0xFFFFFFFFU) | (c[1] << 32);
  second = (c[2] & 0xFFFFFFFFU) | (c[3] << 32);
}

[[gnu::target("avx512f")]] void fill_avx512(uint64_t key, uint64_t counter, int64_t vectors,
                                            uint32_t* out) {
  const RoundKeys keys(key);
  const Words8 factor0 = Words8{} + kFactor0;
  const Words8 factor1 = Words8{} + kFactor1;
  Words8 counters = Words8{0, 4, 1, 5, 2, 6, 3, 7} + counter;
  for (int64_t v = 0; v < vectors; ++v, counters += 8, out += 32) {
    Words8 c[4];
    start_lanes(counters, c);
    for (int i = 0; i < kRounds; ++i) {
      // the forms without a mask warn in g++ 12 (GCC bug 105593)
      const auto product0 = (Words8)_mm512_maskz_mul_epu32(0xFF, (__m512i)c[0], (__m512i)factor0);
      const auto product1 = (Words8)_mm512_maskz_mul_epu32(0xFF, (__m512i)c[2], (__m512i)factor1);
      mix_lanes(product0, product1, keys.first[i], keys.second[i], c);
    }
    Words8 pairs[2];
    pair_lanes(c, pairs[0], pairs[1]);
    const Words8 front = __builtin_shufflevector(pairs[0], pairs[1], 0, 8, 2, 10, 4, 12, 6, 14);
    const Words8 back = __builtin_shufflevector(pairs[0], pairs[1], 1, 9, 3, 11, 5, 13, 7, 15);
    std::memcpy(out, &front, sizeof(front));
    std::memcpy(out + 16, &back, sizeof(back));
  }
}

[[gnu::target("avx2")]] void fill_avx2(uint64_t key, uint64_t counter, int64_t vectors,
                                       uint32_t* out) {
  const RoundKeys keys(key);
  const Words4 factor0 = Words4{} + kFactor0;
  const Words4 factor1 = Words4{} + kFactor1;
  Words4 counters = Words4{0, 2, 1, 3} + counter;
  for (int64_t v = 0; v < vectors; ++v, counters += 4, out += 16) {
    Words4 c[4];
    start_lanes(counters, c);
    for (int i = 0; i < kRounds; ++i) {
      const auto product0 = (Words4)_mm256_mul_epu32((__m256i)c[0], (__m256i)factor0);
      const auto product1 = (Words4)_mm256_mul_epu32((__m256i)c[2], (__m256i)factor1);
      mix_lanes(product0, product1, keys.first[i], keys.second[i], c);
    }
    Words4 pairs[2];
    pair_lanes(c, pairs[0], pairs[1]);
    const Words4 front = __builtin_shufflevector(pairs[0], pairs[1], 0, 4, 2, 6);
    const Words4 back = __builtin_shufflevector(pairs[0], pairs[1], 1, 5, 3, 7);
    std::memcpy(out, &front, sizeof(front));
    std::memcpy(out + 8, &back, sizeof(back));
  }
}
#endif

// Writes the blocks that fill whole vectors, and returns their number.
int64_t fill_whole_vectors(uint64_t key, uint64_t first, int64_t blocks, uint32_t* out) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    fill_avx512(key, first, blocks / 8, out);
    return blocks / 8 * 8;
  }
  if (__builtin_cpu_supports("avx2")) {
    fill_avx2(key, first, blocks / 4, out);
    return blocks / 4 * 4;
  }
#endif
  return 0;
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
  PhiloxBlock block{{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), index,
                     static_cast<uint32_t>(stream)}};
  block.mix(static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return {block.of[0], block.of[1], block.of[2], block.of[3]};
}

float uniform01(uint64_t seed, RandomStream stream, uint32_t index, uint64_t i) {
  return to_unit(philox(seed, stream, index, i / 4)[i % 4]);
}

float normal(uint64_t seed, RandomStream stream, uint32_t index, uint64_t i) {
  return normal_pair(philox(seed, stream, index, i / 4), i % 4 / 2)[i % 2];
}

uint64_t random_key(uint64_t seed, int64_t step, int64_t micro_batch, uint32_t place) {
  const auto word = [](const std::array<uint32_t, 4>& a) { return (uint64_t{a[0]} << 32) | a[1]; };
  const uint64_t of_step =
      word(philox(seed, RandomStream::kDropout, place, static_cast<uint64_t>(step)));
  return word(philox(of_step, RandomStream::kDropout, 0, static_cast<uint64_t>(micro_batch)));
}

void fill_dropout_words(uint64_t key, uint64_t first, int64_t blocks, uint32_t* out) {
  for (int64_t i = fill_whole_vectors(key, first, blocks, out); i < blocks; ++i) {
    const Block words = dropout_words(key, first + static_cast<uint64_t>(i));
    std::ranges::copy(words, out + 4 * i);
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
