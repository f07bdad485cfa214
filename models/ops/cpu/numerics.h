// Everything that must match between workers on the CPU for equal bits (P1). Thread-safe.
#pragma once

#include <string>

namespace pushpull {

// Returns the instruction set in use and library versions: "cpu avx512_core oneDNN 2.6.3 glibc
// 2.36"; on Intel also the cache sizes, which determine oneDNN's blocking.
std::string numerics_fingerprint();

}  // namespace pushpull
