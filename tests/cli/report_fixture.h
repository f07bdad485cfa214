// Made-up results of the command compare: smooth curves with noise from a counter, so that every
// call returns the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/report/compare_result.h"

namespace pushpull::testing {

struct FixtureOptions {
  std::vector<std::string> strategies = {"sync",     "async",          "ssp:4",
                                         "local:16", "allreduce:ring", "allreduce:gloo"};
  std::vector<int64_t> workers = {1, 2, 4};
  int64_t seeds = 5;
  std::vector<std::string> links = {""};  // a further link has two seeds
  int64_t evaluations = 15;
  bool failures = false;  // adds a cell without a good run, and single failures, with hostile texts
};

CompareResult fixture(const FixtureOptions& options);

}  // namespace pushpull::testing
