// The optimizer for one instruction set. CMake compiles this file once per width: PUSHPULL_SIMD is
// the width's attribute, and the functions get its suffix.
#include "common/update/delay_compensation.cpp"  // NOLINT(bugprone-suspicious-include)
#include "common/update/optimizer.cpp"           // NOLINT(bugprone-suspicious-include)
