// What scripts/gpu-check.sh reads of a program that measures on a GPU: a line for each result, with
// tabs between its fields and - where there is none:
//   row NAME VALUE UNIT FLOOR RATIO BAR
//   fail NAME REASON
// FLOOR: the same unit, of what was timed in turns with it. BAR: what RATIO must keep, such as
// >=0.8; a row without one was just measured.
#pragma once

#include <string>

namespace pushpull {

struct GpuRow {
  std::string name;
  double value = 0.0;
  std::string unit = {};
  double floor = 0.0;  // 0: none
  double ratio = 0.0;  // 0: none
  std::string bar = {};
};

std::string to_line(const GpuRow& row);
// On stdout, at once: what comes later may not end.
void print(const GpuRow& row);
void print_failure(const std::string& name, const std::string& reason);

// Takes `flag` out of the words of a command line; whether it was there.
bool take_flag(int& argc, char** argv, const std::string& flag);

}  // namespace pushpull
