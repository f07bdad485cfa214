// Elements of matrices and tensors, as stored and as the multiplier rounds them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace pushpull::cuda_on_host {

enum class Number { kF32, kBf16, kF16 };

inline size_t bytes_of(Number type) { return type == Number::kF32 ? 4 : 2; }

inline float load(const void* from, Number type, size_t index) {
  const auto* const at = static_cast<const std::byte*>(from) + index * bytes_of(type);
  if (type == Number::kF32) {
    float value = 0.0F;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  if (type == Number::kBf16) {
    __nv_bfloat16 value;
    std::memcpy(&value, at, sizeof value);
    return __bfloat162float(value);
  }
  __half value;
  std::memcpy(&value, at, sizeof value);
  return __half2float(value);
}

// Rounds to nearest, ties to even.
inline void store(float value, void* to, Number type, size_t index) {
  auto* const at = static_cast<std::byte*>(to) + index * bytes_of(type);
  if (type == Number::kF32) {
    std::memcpy(at, &value, sizeof value);
  } else if (type == Number::kBf16) {
    const __nv_bfloat16 rounded = __float2bfloat16(value);
    std::memcpy(at, &rounded, sizeof rounded);
  } else {
    const __half rounded = __float2half(value);
    std::memcpy(at, &rounded, sizeof rounded);
  }
}

// How a multiplier rounds an f32 operand.
enum class Rounding { kNone, kTf32, kF16, kBf16 };

// TF32 has 10 bits of mantissa; ties go away from zero. Source: PTX ISA, cvt.rna.tf32.f32.
inline float round_operand(float value, Rounding rounding) {
  if (rounding == Rounding::kF16) return __half2float(__float2half(value));
  if (rounding == Rounding::kBf16) return __bfloat162float(__float2bfloat16(value));
  if (rounding == Rounding::kNone) return value;
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const bool finite = (bits & 0x7F800000U) != 0x7F800000U;
  if (finite) bits = (bits + 0x1000U) & ~0x1FFFU;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline bool is_aligned(const void* at, size_t bytes) {
  return reinterpret_cast<uintptr_t>(at) % bytes == 0;
}

// Overwrites the workspace, so that an operand that overlaps it gives a wrong result.
inline void scribble(void* workspace, size_t bytes) {
  if (bytes > 0) std::memset(workspace, 0xA5, bytes);
}

}  // namespace pushpull::cuda_on_host
