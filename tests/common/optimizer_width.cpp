// The optimizer for one instruction set. CMake compiles this file once per width and says which:
// PUSHPULL_SIMD is its attribute; the functions that it defines get its suffix.
#include "common/update/delay_compensation.cpp"  // NOLINT(bugprone-suspicious-include)
#include "common/update/optimizer.cpp"           // NOLINT(bugprone-suspicious-include)
