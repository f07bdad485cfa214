// PUSHPULL_SIMD before a function compiles its loops once per instruction set; the program picks
// one at start. Only for loops that compute each element alone: then every width gives the same
// bits (P1), since -ffp-contract=off forbids fused multiply-add in all of them.
#pragma once

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
