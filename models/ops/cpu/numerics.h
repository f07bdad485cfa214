// Everything that must match between workers on the CPU for equal bits (P1). Thread-safe.
#pragma once

#include <string>

#include "models/ops/ops.h"

namespace pushpull {

// Returns the instruction set in use and library versions: "cpu avx512_core oneDNN 2.6.3 glibc
// 2.36"; on Intel also the cache sizes, which determine oneDNN's blocking; the precision unless it
// is fp32.
std::string numerics_fingerprint(ops::Precision precision = ops::Precision::kFp32);

// Returns oneDNN's name of the instruction set in use, which DNNL_MAX_CPU_ISA may lower.
std::string instruction_set();

}  // namespace pushpull
