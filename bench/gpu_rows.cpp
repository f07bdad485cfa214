#include "bench/gpu_rows.h"

#include <algorithm>
#include <cstdio>

namespace pushpull {

namespace {

std::string number(double value) {
  if (value == 0.0) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

}  // namespace

std::string to_line(const GpuRow& row) {
  std::string line = "row";
  for (const std::string& field :
       {row.name, number(row.value), row.unit, number(row.floor), number(row.ratio), row.bar}) {
    line += "\t" + (field.empty() ? "-" : field);
  }
  return line;
}

void print(const GpuRow& row) {
  std::printf("%s\n", to_line(row).c_str());
  std::fflush(stdout);
}

void print_failure(const std::string& name, const std::string& reason) {
  std::printf("fail\t%s\t%s\n", name.c_str(), reason.c_str());
  std::fflush(stdout);
}

bool take_flag(int& argc, char** argv, const std::string& flag) {
  char** const end = argv + argc;
  char** const found = std::find(argv + 1, end, flag);
  if (found == end) return false;
  std::copy(found + 1, end, found);
  --argc;
  return true;
}

}  // namespace pushpull
