// Counter-based random numbers: a value is a pure function of (seed, stream, counter), so any
// process can produce any part of any sequence. Philox4x32-10 (Salmon et al., SC 2011). Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

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
