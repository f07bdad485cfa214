// The type of activations of a CPU backend, f32 or bf16, and how own loops reach them. The loops
// compute on floats in either case: floats are read and written in place, bf16 is widened into a
// buffer that stays in the first cache, and rounded to the nearest, ties to even, on the way back.
// Any thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "common/base/simd.h"
#include "models/ops/number.h"

namespace pushpull::ops::cpu {

// The largest absolute value of activations, without widening them. Any thread.

// Absolute values order as their bits do, and those of infinity and NaN are the largest. So these
// return infinity or NaN if there is one.
PUSHPULL_SIMD inline float largest_absolute(const float* x, int64_t count) {
  uint32_t bits = 0;
  for (int64_t i = 0; i < count; ++i) {
    bits = std::max(bits, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffU);
  }
  return std::bit_cast<float>(bits);
}
PUSHPULL_SIMD inline float largest_absolute(const Bf16* x, int64_t count) {
  uint16_t bits = 0;
  for (int64_t i = 0; i < count; ++i) {
    bits = std::max(bits, static_cast<uint16_t>(x[i].bits & 0x7fffU));
  }
  return to_float(Bf16{bits});
}

}  // namespace pushpull::ops::cpu

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "models/ops/cpu/primitive.h"
#include "models/ops/cpu/split.h"
#include "models/ops/operation.h"

namespace pushpull::ops::cpu {

// Calls make(float{}) or make(Bf16{}), by the type of the activations.
template <class Make>
auto by_element(dnnl::memory::data_type type, const Make& make) {
  return type == dnnl::memory::data_type::bf16 ? make(Bf16{}) : make(float{});
}
// Does the same by the type of a value: an activation has the backend's type, any other value is f32.
template <class Make>
auto by_element(const Shared& shared, const ValueType& type, const Make& make) {
  const bool is_activation = type.element == Element::kActivation;
  return by_element(is_activation ? shared.activation : dnnl::memory::data_type::f32, make);
}

template <class T>
const T* elements(const In& in) {
  return static_cast<const T*>(in.data);
}
template <class T>
T* elements(const Out& out) {
  return static_cast<T*>(out.data);
}

#if defined(__x86_64__)
// The instructions of the processors that make_cpu_backend accepts for bf16.
#define PUSHPULL_BF16 __attribute__((target("avx512f,avx512bf16")))

PUSHPULL_BF16 inline void widen_lanes(const Bf16* from, float* to) {
  using Halves [[gnu::vector_size(32)]] = uint16_t;
  using Wholes [[gnu::vector_size(64)]] = uint32_t;
  Halves halves;
  std::memcpy(&halves, from, sizeof(halves));
  const Wholes wholes = __builtin_convertvector(halves, Wholes) << 16;
  std::memcpy(to, &wholes, sizeof(wholes));
}
// Subnormal numbers become 0, as in oneDNN's kernels.
PUSHPULL_BF16 inline void narrow_lanes(const float* from, Bf16* to) {
  const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_loadu_ps(from));
  std::memcpy(static_cast<void*>(to), &rounded, sizeof(rounded));
}
#else
#define PUSHPULL_BF16
inline void widen_lanes(const Bf16* from, float* to) {
  for (int64_t i = 0; i < 16; ++i) to[i] = to_float(from[i]);
}
inline void narrow_lanes(const float* from, Bf16* to) {
  for (int64_t i = 0; i < 16; ++i) to[i] = from_float<Bf16>(from[i]);
}
#endif

PUSHPULL_BF16 inline void widen(const Bf16* from, int64_t n, float* to) {
  constexpr int64_t kWide = 16;
  int64_t i = 0;
  for (; i + kWide <= n; i += kWide) widen_lanes(from + i, to + i);
  for (; i < n; ++i) to[i] = to_float(from[i]);
}

PUSHPULL_BF16 inline void narrow(const float* from, int64_t n, Bf16* to) {
  constexpr int64_t kWide = 16;
  int64_t i = 0;
  for (; i + kWide <= n; i += kWide) narrow_lanes(from + i, to + i);
  if (i == n) return;
  std::array<float, kWide> rest{};
  std::array<Bf16, kWide> rounded;
  std::copy_n(from + i, n - i, rest.data());
  narrow_lanes(rest.data(), rounded.data());
  std::copy_n(rounded.data(), n - i, to + i);
}

// Elements of a loop that are converted at once: four buffers of them fit the first cache.
constexpr int64_t kPiece = 1'024;

// `n` activations as floats that a loop reads.
//   buffer: of n floats, used for bf16 only.
inline const float* read(const float* from, int64_t /*n*/, float* /*buffer*/) { return from; }
inline const float* read(const Bf16* from, int64_t n, float* buffer) {
  widen(from, n, buffer);
  return buffer;
}

// The floats that a loop writes, and their way to the activations afterwards.
inline float* written(float* to, float* /*buffer*/) { return to; }
inline float* written(Bf16* /*to*/, float* buffer) { return buffer; }
inline void finish(const float* /*buffer*/, int64_t /*n*/, float* /*to*/) {}
inline void finish(const float* buffer, int64_t n, Bf16* to) { narrow(buffer, n, to); }

// Buffers on the stack, for up to kPiece activations. There are none for floats.
template <class T>
using PieceBuffer = std::array<float, std::is_same_v<T, float> ? 1 : kPiece>;

// Reads a piece.
template <class T>
class Reads {
 public:
  Reads(const T* from, int64_t n) : data_(read(from, n, buffer_.data())) {}
  Reads(const Reads&) = delete;
  Reads& operator=(const Reads&) = delete;
  const float* data() const { return data_; }

 private:
  PieceBuffer<T> buffer_;
  const float* data_;
};

// Writes a piece at the end of its life.
template <class T>
class Writes {
 public:
  Writes(T* to, int64_t n) : to_(to), n_(n), data_(written(to, buffer_.data())) {}
  ~Writes() { finish(data_, n_, to_); }
  Writes(const Writes&) = delete;
  Writes& operator=(const Writes&) = delete;
  float* data() const { return data_; }

 private:
  PieceBuffer<T> buffer_;
  T* to_;
  int64_t n_;
  float* data_;
};

// Reads a piece, and writes it back at the end of its life.
template <class T>
class Changes {
 public:
  Changes(T* at, int64_t n) : writes_(at, n) {
    if constexpr (!std::is_same_v<T, float>) widen(at, n, writes_.data());
  }
  float* data() const { return writes_.data(); }

 private:
  Writes<T> writes_;
};

// Calls body(first, count) on pieces that cover [0, n): whole ranges of a thread for floats.
template <class T, class Body>
void in_pieces(int64_t n, int64_t grain, const Body& body) {
  in_ranges(n, grain, [&body](int64_t begin, int64_t end) {
    const int64_t step = std::is_same_v<T, float> ? end - begin : kPiece;
    for (int64_t i = begin; i < end; i += step) body(i, std::min(step, end - i));
  });
}

// Rows of floats for each thread, for loops over whole rows of bf16. Empty for floats.
template <class T>
class RowBuffers {
 public:
  RowBuffers(const Shared& shared, int64_t rows, int64_t width) : width_(width), rows_(rows) {
    if constexpr (!std::is_same_v<T, float>) {
      buffer_ = allocate(static_cast<size_t>(shared.threads * rows * width));
    }
  }
  // Returns a row of the calling thread; null for floats.
  float* row(int64_t i) const;

 private:
  int64_t width_;
  int64_t rows_;
  Buffer buffer_;
};

template <class T>
float* RowBuffers<T>::row(int64_t i) const {
  if constexpr (std::is_same_v<T, float>) return nullptr;
  return buffer_.data() + (thread_index() * rows_ + i) * width_;
}

}  // namespace pushpull::ops::cpu
