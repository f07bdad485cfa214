// PUSHPULL_SIMD before a function compiles its loops once per instruction set; the program picks
// one at start. Only for loops that compute each element alone: then every width gives the same
// bits (P1), since -ffp-contract=off forbids fused multiply-add in all of them.
#pragma once

#include <cstddef>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#ifndef PUSHPULL_SIMD
#if defined(PUSHPULL_NO_TARGET_CLONES) || !defined(__x86_64__) || defined(__clang__)
#define PUSHPULL_SIMD
#else
#define PUSHPULL_SIMD __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#endif

// Before a loop: iteration i touches only element i of each array. Without it the compiler must
// assume that arrays overlap, and falls back to one element at a time where one is updated in
// place.
#if defined(__clang__)
#define PUSHPULL_ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define PUSHPULL_ELEMENTWISE _Pragma("GCC ivdep")
#endif

// For what has to be inlined into each of those copies.
#define PUSHPULL_INLINE [[gnu::always_inline]] inline

namespace pushpull {

// Past the cache: a line that is written whole this way is not read first. After the last one, and
// before another thread looks, end_streams().
//   to: 16-byte aligned, n a multiple of 4; from: 16-byte aligned.
PUSHPULL_INLINE void stream_floats(const float* from, size_t n, float* to) {
#if defined(__SSE2__)
  for (size_t i = 0; i < n; i += 4) _mm_stream_ps(to + i, _mm_load_ps(from + i));
#else
  std::memcpy(to, from, n * sizeof(float));
#endif
}

PUSHPULL_INLINE void end_streams() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace pushpull
