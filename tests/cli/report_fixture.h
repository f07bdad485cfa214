// Comparisons as the command would find them, made up: smooth curves with noise from a counter, so
// that every call gives the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/result/compare_result.h"

namespace pushpull::testing {

struct FixtureOptions {
  std::vector<std::string> strategies = {"sync",     "async",          "ssp:4",
                                         "local:16", "allreduce:ring", "allreduce:gloo"};
  std::vector<int64_t> workers = {1, 2, 4};
  int64_t seeds = 5;
  std::vector<std::string> links = {""};  // of further ones: two seeds
  int64_t evaluations = 15;
  bool failures = false;  // a cell without a good run, and single ones, with hostile texts
};

CompareResult fixture(const FixtureOptions& options);

}  // namespace pushpull::testing
