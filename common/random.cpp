#include "common/random.h"

#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

namespace pushpull {

std::array<uint32_t, 4> philox(uint64_t seed, RandomStream stream, uint32_t index,
                               uint64_t counter) {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                               index, static_cast<uint32_t>(stream)};
  auto k0 = static_cast<uint32_t>(seed);
  auto k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

float uniform01(uint64_t seed, RandomStream stream, uint32_t index, uint64_t i) {
  const std::array<uint32_t, 4> words = philox(seed, stream, index, i / 4);
  return static_cast<float>(words[i % 4] >> 8) * 0x1p-24F;
}

float normal(uint64_t seed, RandomStream stream, uint32_t index, uint64_t i) {
  const double u = 1.0 - uniform01(seed, stream, index, 2 * i);
  const double v = uniform01(seed, stream, index, 2 * i + 1);
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
}

void fill_uniform(uint64_t seed, RandomStream stream, uint32_t index, uint64_t first, float bound,
                  uint64_t count, float* out) {
  for (uint64_t k = 0; k < count; ++k) {
    out[k] = bound * (2.0F * uniform01(seed, stream, index, first + k) - 1.0F);
  }
}

std::vector<int64_t> permutation(uint64_t seed, uint32_t epoch, int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) {
    const std::array<uint32_t, 4> words = philox(seed, RandomStream::kPermutation, epoch, i);
    const uint64_t word = (uint64_t{words[0]} << 32) | words[1];
    std::swap(order[i - 1], order[word % i]);
  }
  return order;
}

}  // namespace pushpull
