// Counter-based random numbers: a value is a pure function of (seed, stream, counter), so any
// process can produce any part of any sequence. Philox4x32-10 (Salmon et al., SC 2011). Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/base/host_device.h"

namespace pushpull {

// One stream per use, so that no two uses share numbers.
enum class RandomStream : uint32_t {
  kInit = 1,         // (tensor, element)
  kPermutation = 2,  // (epoch, position)
  kDummyData = 3,    // (sample, element)
  kDummyTeacher = 4,
  kDropout = 5,    // (operation, step), (micro-batch); and by the key of both: (element)
  kTextShift = 6,  // (epoch)
  kGenerate = 7,   // (token)
  kDummyQa = 8,    // (sample, draw)
  kSampler = 9,    // (epoch), (position)
};

// One block of Philox4x32-10 as in Random123: ten rounds of two 32 x 32 -> 64 bit products; between
// rounds the key grows by the golden ratio and sqrt(3) - 1. One source for the host and for kernels.
struct PhiloxBlock {
  static constexpr int kRounds = 10;
  static constexpr uint32_t kFactor0 = 0xD2511F53;
  static constexpr uint32_t kFactor1 = 0xCD9E8D57;
  static constexpr uint32_t kGrowth0 = 0x9E3779B9;
  static constexpr uint32_t kGrowth1 = 0xBB67AE85;

  uint32_t of[4];  // the counter; after `mix` the random words

  PP_HOST_DEVICE void mix(uint32_t key0, uint32_t key1) {
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t product0 = uint64_t{kFactor0} * of[0];
      const uint64_t product1 = uint64_t{kFactor1} * of[2];
      of[0] = static_cast<uint32_t>(product1 >> 32) ^ of[1] ^ key0;
      of[1] = static_cast<uint32_t>(product1);
      of[2] = static_cast<uint32_t>(product0 >> 32) ^ of[3] ^ key1;
      of[3] = static_cast<uint32_t>(product0);
      key0 += kGrowth0;
      key1 += kGrowth1;
    }
  }
};

// Returns the words that `dropout_words` returns below, for kernels.
PP_HOST_DEVICE inline PhiloxBlock dropout_block(uint64_t key, uint64_t i) {
  PhiloxBlock block{{static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0,
                     static_cast<uint32_t>(RandomStream::kDropout)}};
  block.mix(static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
  return block;
}

// Returns four independent 32-bit values for (seed, stream, index, counter).
std::array<uint32_t, 4> philox(uint64_t seed, RandomStream stream, uint32_t index,
                               uint64_t counter);

// Returns element `i` of sequence (seed, stream, index): uniform in [0, 1), 24 bits.
float uniform01(uint64_t seed, RandomStream stream, uint32_t index, uint64_t i);

// Returns element `i` of a standard normal sequence: Box-Muller over the same numbers.
float normal(uint64_t seed, RandomStream stream, uint32_t index, uint64_t i);

// Returns 64 bits for one random operation in one micro-batch of one step: the same in every process,
// after a loss and in a replay.
//   place: of the operation among the random ones of its model.
uint64_t random_key(uint64_t seed, int64_t step, int64_t micro_batch, uint32_t place);

// Returns words 4 i to 4 i + 3 of the stream of a random_key. Element k of a dropout with
// probability p is kept if its word k is at least p 2^32.
inline std::array<uint32_t, 4> dropout_words(uint64_t key, uint64_t i) {
  return philox(key, RandomStream::kDropout, 0, i);
}

// Writes `blocks` blocks of four words to `out`: dropout_words(key, first), (key, first + 1), ...
void fill_dropout_words(uint64_t key, uint64_t first, int64_t blocks, uint32_t* out);

// Writes elements [first, first + count) of a uniform(-bound, bound) sequence to `out`. The values
// do not depend on how the range is split.
void fill_uniform(uint64_t seed, RandomStream stream, uint32_t index, uint64_t first, float bound,
                  uint64_t count, float* out);

// Writes elements [first, first + count) of a normal sequence with mean 0 and the given standard
// deviation to `out`: deviation * normal(..., i), however the range is split. The last bit of the
// math library's log, cos and sin may differ between processors and glibc versions; rounding to
// float hides that for all but about one element in 10^8.
void fill_normal(uint64_t seed, RandomStream stream, uint32_t index, uint64_t first,
                 float deviation, uint64_t count, float* out);

// Returns a permutation of 0..n-1 by Fisher-Yates, keyed by (seed, epoch).
std::vector<int64_t> permutation(uint64_t seed, uint32_t epoch, int64_t n);

}  // namespace pushpull
