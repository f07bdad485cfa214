// Output of the GPU benchmarks for scripts/gpu-check.sh: one line per result, with fields between
// tabs and - for an absent field.
//   row NAME VALUE UNIT FLOOR RATIO BAR
//   fail NAME REASON
// FLOOR: value of the alternating reference, in the same unit. BAR: condition on RATIO, such as
// >=0.8; a row without a bar is information only.
#pragma once

#include <string>

namespace pushpull {

struct GpuRow {
  std::string name;
  double value = 0.0;
  std::string unit = {};
  double floor = 0.0;  // 0 = none
  double ratio = 0.0;  // 0 = none
  std::string bar = {};
};

std::string to_line(const GpuRow& row);
// Writes to stdout and flushes, since a later measurement may not end.
void print(const GpuRow& row);
void print_failure(const std::string& name, const std::string& reason);

// Removes `flag` from the arguments. Returns true if it was among them.
bool take_flag(int& argc, char** argv, const std::string& flag);

}  // namespace pushpull
