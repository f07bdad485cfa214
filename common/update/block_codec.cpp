#include "common/update/block_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "common/base/error.h"
#include "common/base/simd.h"
#include "common/layout/slice_map.h"

namespace pushpull {

namespace {

constexpr uint32_t kSign = 0x80000000U;
constexpr uint32_t kInfinite = 0x7f800000U;
constexpr float kLevels = 127.0F;  // int8 levels on each side of 0

size_t whole_floats(size_t bytes) {
  return (bytes + sizeof(float) - 1) / sizeof(float) * sizeof(float);
}

// The comparisons below compile to selects, so that loops over these functions vectorise.

inline uint16_t half_of(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t size = bits & ~kSign;
  // round to nearest even at bit 13, after rebiasing the exponent from 127 to 15
  const uint32_t normal = (size - (112U << 23) + 0xfffU + ((size >> 13) & 1U)) >> 13;
  // below 2^-14: the addition aligns the bits to the unit 2^-24 and rounds them
  const uint32_t tiny = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5F) - 0x3f000000U;
  uint32_t half = size < 0x38800000U ? tiny : normal;
  half = size >= 0x477ff000U ? 0x7bffU : half;  // 65520 would round to infinity
  return static_cast<uint16_t>(half | ((bits & kSign) >> 16));
}

inline float float_of_half(uint16_t x) {
  const uint32_t size = (static_cast<uint32_t>(x) & 0x7fffU) << 13;
  const uint32_t sign = (static_cast<uint32_t>(x) & 0x8000U) << 16;
  const uint32_t normal = size + (112U << 23);
  // exponent 0: a multiple of 2^-24, which the subtraction normalises
  const uint32_t tiny =
      std::bit_cast<uint32_t>(std::bit_cast<float>(size + (113U << 23)) - 0x1p-14F);
  uint32_t bits = size < (1U << 23) ? tiny : normal;
  bits = size >= (31U << 23) ? size | kInfinite : bits;
  return std::bit_cast<float>(bits | sign);
}

inline uint16_t bf16_of(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t size = bits & ~kSign;
  uint32_t high = (size + 0x7fffU + ((size >> 16) & 1U)) >> 16;
  high = high >= 0x7f80U ? 0x7f7fU : high;
  high = size == kInfinite ? 0x7f80U : high;
  high = size > kInfinite ? 0x7fc0U : high;
  return static_cast<uint16_t>(high | ((bits & kSign) >> 16));
}

inline float float_of_bf16(uint16_t x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x) << 16);
}

PUSHPULL_SIMD void to_half(const float* x, int64_t n, uint16_t* out) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) out[i] = half_of(x[i]);
}

PUSHPULL_SIMD void from_half(const uint16_t* x, int64_t n, float* out) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) out[i] = float_of_half(x[i]);
}

// Writes the bit patterns of |x|, which order like the values.
PUSHPULL_SIMD void magnitudes(const float* x, int64_t n, int32_t* out) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<int32_t>(std::bit_cast<uint32_t>(x[i]) & ~kSign);
  }
}

PUSHPULL_SIMD int32_t largest(const int32_t* x, int64_t n) {
  int32_t most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, x[i]);
  return most;
}

// Returns the k-th largest value, built bit by bit: the largest number that at least k elements
// reach.
PUSHPULL_SIMD int32_t largest_but(int64_t k, const int32_t* x, int64_t n) {
  int32_t found = 0;
  for (int bit = 30; bit >= 0; --bit) {
    const int32_t next = found | (1 << bit);
    int32_t reach = 0;
    for (int64_t i = 0; i < n; ++i) reach += x[i] >= next ? 1 : 0;
    found = reach >= k ? next : found;
  }
  return found;
}

// Rounds x / scale to the nearest integer, ties to even: adding 1.5 * 2^23 leaves no bits for a
// fraction.
PUSHPULL_SIMD void to_levels(const float* x, float scale, int64_t n, int8_t* out) {
  constexpr float kShift = 12582912.0F;
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) {
    // a scale near the smallest float has few bits, so the quotient can slightly exceed kLevels
    const float level = std::min(std::max(x[i] / scale, -kLevels), kLevels);
    const auto bits = std::bit_cast<int32_t>(level + kShift) - std::bit_cast<int32_t>(kShift);
    out[i] = static_cast<int8_t>(bits);
  }
}

PUSHPULL_SIMD void from_levels(const int8_t* x, float scale, int64_t n, float* out) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) out[i] = scale * static_cast<float>(x[i]);
}

void encode_int8(const float* x, int64_t n, std::byte* out) {
  std::array<int32_t, kBlockElements> sizes{};
  magnitudes(x, n, sizes.data());
  const float scale = std::bit_cast<float>(largest(sizes.data(), n)) / kLevels;
  std::memcpy(out, &scale, sizeof scale);
  auto* levels = reinterpret_cast<int8_t*>(out + sizeof scale);
  if (scale > 0.0F) {
    to_levels(x, scale, n, levels);
  } else {
    std::memset(levels, 0, static_cast<size_t>(n));  // all zeros, or too small for a scale
  }
}

void decode_int8(const std::byte* in, int64_t n, float* out) {
  float scale = 0.0F;
  std::memcpy(&scale, in, sizeof scale);
  from_levels(reinterpret_cast<const int8_t*>(in + sizeof scale), scale, n, out);
}

size_t index_bytes(int64_t k) { return whole_floats(static_cast<size_t>(k) * sizeof(uint16_t)); }

void encode_top(double fraction, const float* x, int64_t n, std::byte* out) {
  const int64_t k = top_elements(fraction, n);
  std::array<int32_t, kBlockElements> sizes{};
  magnitudes(x, n, sizes.data());
  const int32_t least = largest_but(k, sizes.data(), n);
  const int64_t above = std::count_if(sizes.begin(), sizes.begin() + n,
                                      [least](int32_t size) { return size > least; });
  int64_t ties = k - above;
  std::byte* values = out + index_bytes(k);
  for (int64_t i = 0; i < n; ++i) {
    const int32_t size = sizes[static_cast<size_t>(i)];
    if (size < least || (size == least && ties-- <= 0)) continue;
    const auto index = static_cast<uint16_t>(i);
    std::memcpy(out, &index, sizeof index);
    std::memcpy(values, x + i, sizeof(float));
    out += sizeof index;
    values += sizeof(float);
  }
}

void decode_top(double fraction, const std::byte* in, int64_t n, float* out) {
  const int64_t k = top_elements(fraction, n);
  std::fill(out, out + n, 0.0F);
  const std::byte* values = in + index_bytes(k);
  for (int64_t i = 0; i < k; ++i) {
    uint16_t index = 0;
    std::memcpy(&index, in + i * static_cast<int64_t>(sizeof index), sizeof index);
    std::memcpy(out + index, values + i * static_cast<int64_t>(sizeof(float)), sizeof(float));
  }
}

bool top_fits(double fraction, const std::byte* in, int64_t n) {
  int64_t before = -1;
  for (int64_t i = 0; i < top_elements(fraction, n); ++i) {
    uint16_t index = 0;
    std::memcpy(&index, in + i * static_cast<int64_t>(sizeof index), sizeof index);
    if (index <= before || index >= n) return false;
    before = index;
  }
  return true;
}

}  // namespace

int64_t top_elements(double fraction, int64_t n) {
  const auto k = static_cast<int64_t>(std::ceil(fraction * static_cast<double>(n)));
  return std::clamp<int64_t>(k, 1, n);
}

size_t encoded_block_bytes(const Codec& codec, int64_t n) {
  const auto count = static_cast<size_t>(n);
  switch (codec.kind) {
    case CodecKind::kFp16:
    case CodecKind::kBf16:
      return whole_floats(count * sizeof(uint16_t));
    case CodecKind::kInt8:
      return sizeof(float) + whole_floats(count);
    case CodecKind::kTopK: {
      const int64_t k = top_elements(codec.fraction, n);
      return index_bytes(k) + static_cast<size_t>(k) * sizeof(float);
    }
    case CodecKind::kFp32:
      break;
  }
  return count * sizeof(float);
}

void encode_block(const Codec& codec, const float* x, int64_t n, std::byte* out) {
  PP_ASSERT(n > 0 && n <= kBlockElements);
  // zeroes the padding after the last element and after topk's indices
  std::memset(out, 0, encoded_block_bytes(codec, n));
  switch (codec.kind) {
    case CodecKind::kFp16:
      return to_half(x, n, reinterpret_cast<uint16_t*>(out));
    case CodecKind::kBf16:
      return to_bf16(x, n, reinterpret_cast<uint16_t*>(out));
    case CodecKind::kInt8:
      return encode_int8(x, n, out);
    case CodecKind::kTopK:
      return encode_top(codec.fraction, x, n, out);
    case CodecKind::kFp32:
      std::memcpy(out, x, static_cast<size_t>(n) * sizeof(float));
  }
}

bool block_fits(const Codec& codec, const std::byte* in, int64_t n) {
  return codec.kind != CodecKind::kTopK || top_fits(codec.fraction, in, n);
}

void decode_block(const Codec& codec, const std::byte* in, int64_t n, float* out) {
  switch (codec.kind) {
    case CodecKind::kFp16:
      return from_half(reinterpret_cast<const uint16_t*>(in), n, out);
    case CodecKind::kBf16:
      return from_bf16(reinterpret_cast<const uint16_t*>(in), n, out);
    case CodecKind::kInt8:
      return decode_int8(in, n, out);
    case CodecKind::kTopK:
      return decode_top(codec.fraction, in, n, out);
    case CodecKind::kFp32:
      std::memcpy(out, in, static_cast<size_t>(n) * sizeof(float));
  }
}

PUSHPULL_SIMD void to_bf16(const float* x, int64_t n, uint16_t* out) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) out[i] = bf16_of(x[i]);
}

PUSHPULL_SIMD void from_bf16(const uint16_t* x, int64_t n, float* out) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) out[i] = float_of_bf16(x[i]);
}

PUSHPULL_SIMD void round_to_bf16(const float* x, int64_t n, float* out) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) out[i] = float_of_bf16(bf16_of(x[i]));
}

}  // namespace pushpull
