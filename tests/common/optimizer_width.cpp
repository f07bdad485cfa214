// The optimizer for one instruction set. CMake compiles this file once per width and says which:
// PUSHPULL_SIMD is its attribute; update_range, average_range and state_names get its suffix.
#include "common/optimizer.cpp"  // NOLINT(bugprone-suspicious-include)
