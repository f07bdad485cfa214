// PUSHPULL_SIMD in front of a function compiles its loops once per instruction set; the program
// picks one at start. Use it only for loops that compute each element independently: then every
// vector width gives the same bits (P1), since -ffp-contract=off forbids fused multiply-add in all
// of them.
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

// Put before a loop in which iteration i touches only element i of each array. Without it the
// compiler must assume that the arrays overlap, and does not vectorise a loop that updates one of
// them in place.
#if defined(__clang__)
#define PUSHPULL_ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define PUSHPULL_ELEMENTWISE _Pragma("GCC ivdep")
#endif

// For functions that must be inlined into each copy of a loop that PUSHPULL_SIMD compiles.
#define PUSHPULL_INLINE [[gnu::always_inline]] inline

namespace pushpull {

// Non-temporal copy: writes whole cache lines without reading them first. Call end_streams() after
// the last copy, before another thread reads the data.
//   from, to: 16-byte aligned.
//   n: floats, a multiple of 4.
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
