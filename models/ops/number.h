// The types of activations on a device, and their loads and stores: kernels compute in f32 and
// convert when they load and store. Host and device give the same bits, so that tests on the host
// cover the kernels. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/base/error.h"
#include "common/base/host_device.h"

// Unrolls loops over registers: an array with a run-time index would be placed in memory.
#if defined(__CUDA_ARCH__)
#define PP_UNROLL _Pragma("unroll")
#else
#define PP_UNROLL
#endif

namespace pushpull::ops {

// bf16, the upper half of an f32, and IEEE 754 binary16.
struct Bf16 {
  uint16_t bits = 0;
};
struct Fp16 {
  uint16_t bits = 0;
};

PP_HOST_DEVICE inline uint32_t bits_of(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
PP_HOST_DEVICE inline float float_of(uint32_t bits) {
  float value = 0.0F;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

PP_HOST_DEVICE inline float to_float(float value) { return value; }
PP_HOST_DEVICE inline float to_float(Bf16 value) { return float_of(uint32_t{value.bits} << 16); }
PP_HOST_DEVICE inline float to_float(Fp16 value) {
#if defined(__CUDA_ARCH__)
  float wide = 0.0F;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#else
  const uint32_t sign = (value.bits & 0x8000U) << 16;
  const uint32_t rest = value.bits & 0x7fffU;
  if (rest >= 0x7c00U) return float_of(sign | 0x7f800000U | (rest << 13));  // infinite or NaN
  const float size = rest < 0x0400U ? static_cast<float>(rest) * 0x1p-24F   // subnormal
                                    : float_of((rest << 13) + (112U << 23));
  return float_of(sign | bits_of(size));
#endif
}

// Rounds to nearest, ties to even; maps every NaN to the NaN that the device produces.
template <class T>
PP_HOST_DEVICE T from_float(float value);

template <>
PP_HOST_DEVICE inline float from_float<float>(float value) {
  return value;
}
template <>
PP_HOST_DEVICE inline Bf16 from_float<Bf16>(float value) {
  Bf16 result;
#if defined(__CUDA_ARCH__)
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
#else
  const uint32_t bits = bits_of(value);
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  result.bits = static_cast<uint16_t>(nan ? 0x7fffU : rounded);
#endif
  return result;
}
template <>
PP_HOST_DEVICE inline Fp16 from_float<Fp16>(float value) {
  Fp16 result;
#if defined(__CUDA_ARCH__)
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
#else
  const uint32_t sign = (bits_of(value) >> 16) & 0x8000U;
  const uint32_t size = bits_of(value) & 0x7fffffffU;
  uint32_t rest = 0;
  if (size > 0x7f800000U) {
    result.bits = 0x7fffU;
    return result;
  }
  if (size >= 0x477ff000U) {  // 65520 and above: infinite
    rest = 0x7c00U;
  } else if (size < 0x38800000U) {  // below 2^-14: the sum's last place is binary16's smallest
    rest = bits_of(float_of(size) + 0.5F) - bits_of(0.5F);
  } else {
    rest = (size - (112U << 23) + 0x0fffU + ((size >> 13) & 1U)) >> 13;
  }
  result.bits = static_cast<uint16_t>(sign | rest);
#endif
  return result;
}

// Returns x after being stored and loaded again.
template <class T>
PP_HOST_DEVICE float rounded(float value) {
  return to_float(from_float<T>(value));
}

// Elements in a pack of 16 bytes, the most that one thread moves at once.
template <class T>
constexpr int kPackSize = static_cast<int>(16 / sizeof(T));

inline bool is_aligned(const void* first) { return reinterpret_cast<uintptr_t>(first) % 16 == 0; }

// The unit of one load or store: 4, 8 or 16 bytes, in 32-bit words, because the compiler may split
// shorter pieces.
template <int kWords>
struct alignas(4 * kWords) Words {
  uint32_t of[kWords];
};
template <int kWords>
PP_HOST_DEVICE Words<kWords> load_words(const void* from) {
#if defined(__CUDA_ARCH__)
  return *static_cast<const Words<kWords>*>(from);
#else
  PP_ASSERT(reinterpret_cast<uintptr_t>(from) % sizeof(Words<kWords>) == 0);
  Words<kWords> words;
  std::memcpy(&words, from, sizeof(words));
  return words;
#endif
}
template <int kWords>
PP_HOST_DEVICE void store_words(const Words<kWords>& words, void* to) {
#if defined(__CUDA_ARCH__)
  *static_cast<Words<kWords>*>(to) = words;
#else
  PP_ASSERT(reinterpret_cast<uintptr_t>(to) % sizeof(words) == 0);
  std::memcpy(to, &words, sizeof(words));
#endif
}

// Converts between element i of an array of words and f32; a word holds one or two elements.
template <class T>
PP_HOST_DEVICE T element(const uint32_t* words, int i) {
  T element;
  element.bits = static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16));
  return element;
}
template <>
PP_HOST_DEVICE inline float element<float>(const uint32_t* words, int i) {
  return float_of(words[i]);
}
template <class T>
PP_HOST_DEVICE uint32_t word(const float* from) {
  return from_float<T>(from[0]).bits | (uint32_t{from_float<T>(from[1]).bits} << 16);
}
template <>
PP_HOST_DEVICE inline uint32_t word<float>(const float* from) {
  return bits_of(from[0]);
}

// Loads or stores kCount elements at an address that is a multiple of their size in bytes.
template <int kCount, class T>
PP_HOST_DEVICE void load_vector(const T* from, float* to) {
  constexpr int kBytes = kCount * static_cast<int>(sizeof(T));
  if constexpr (kBytes == 2) {
    to[0] = to_float(*from);
  } else {
    const auto words = load_words<kBytes / 4>(from);
    PP_UNROLL
    for (int i = 0; i < kCount; ++i) to[i] = to_float(element<T>(words.of, i));
  }
}
template <int kCount, class T>
PP_HOST_DEVICE void store_vector(const float* from, T* to) {
  constexpr int kBytes = kCount * static_cast<int>(sizeof(T));
  if constexpr (kBytes == 2) {
    *to = from_float<T>(from[0]);
  } else {
    constexpr std::ptrdiff_t kEach = kCount / (kBytes / 4);
    Words<kBytes / 4> words;
    PP_UNROLL
    for (int i = 0; i < kBytes / 4; ++i) words.of[i] = word<T>(from + kEach * i);
    store_words(words, to);
  }
}

// Loads or stores the first `count` elements of a pack; the rest become 0.
//   kPacked: `from` or `to` is 16-byte aligned, and a whole pack moves at once.
template <bool kPacked, int kCount, class T>
PP_HOST_DEVICE void load_pack(const T* from, int64_t count, float* to) {
  if (kPacked && count >= kCount) {
    constexpr int kParts = kCount * static_cast<int>(sizeof(T)) > 16 ? 2 : 1;
    constexpr std::ptrdiff_t kPart = kCount / kParts;
    PP_UNROLL
    for (int part = 0; part < kParts; ++part) {
      load_vector<kCount / kParts>(from + kPart * part, to + kPart * part);
    }
    return;
  }
  PP_UNROLL
  for (int i = 0; i < kCount; ++i) to[i] = i < count ? to_float(from[i]) : 0.0F;
}
template <bool kPacked, int kCount, class T>
PP_HOST_DEVICE void store_pack(const float* from, int64_t count, T* to) {
  if (kPacked && count >= kCount) {
    constexpr int kParts = kCount * static_cast<int>(sizeof(T)) > 16 ? 2 : 1;
    constexpr std::ptrdiff_t kPart = kCount / kParts;
    PP_UNROLL
    for (int part = 0; part < kParts; ++part) {
      store_vector<kCount / kParts>(from + kPart * part, to + kPart * part);
    }
    return;
  }
  PP_UNROLL
  for (int i = 0; i < kCount; ++i) {
    if (i < count) to[i] = from_float<T>(from[i]);
  }
}

}  // namespace pushpull::ops
