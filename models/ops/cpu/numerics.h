// What must be equal between workers that compute on the cpu for equal bits (P1).
#pragma once

#include <string>

namespace pushpull {

// Instruction set in use and library versions: "cpu avx512_core oneDNN 2.6.3 glibc 2.36", and on
// Intel the cache sizes that oneDNN cuts blocks by.
std::string numerics_fingerprint();

}  // namespace pushpull
