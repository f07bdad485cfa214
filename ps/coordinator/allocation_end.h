// The end of the batch job that this process runs in, from Slurm. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pushpull {

// Runs a short program and reads its output, with a deadline. Any thread.

// Returns the standard output of the program, at most 64 KiB, or nothing with the reason in `why`:
// it cannot be executed, it ends with another code than 0, or it has not ended after `limit_ms` and
// is killed. Its standard error goes nowhere.
//   words: the program, found in PATH, and its arguments.
std::optional<std::string> output_of(const std::vector<std::string>& words, int64_t limit_ms,
                                     std::string& why);

// Returns the time left as Slurm prints it (squeue -o %L), in seconds: "1-02:03:04", "02:03:04",
// "3:04" or "0:10". Returns nothing for anything else, as "UNLIMITED" and "INVALID".
// Source: squeue(1), %L: days-hours:minutes:seconds.
std::optional<int64_t> parse_time_left(std::string_view text);

// The outside world of `allocation_end`.
struct AllocationSource {
  // Returns the variable's value, or nothing.
  std::function<std::optional<std::string>(const std::string&)> variable;
  // Runs a program, as output_of does.
  std::function<std::optional<std::string>(const std::vector<std::string>&, std::string& why)> run;
  int64_t now_utc_ms = 0;
};

// Returns when the allocation ends, in milliseconds since 1970: SLURM_JOB_END_TIME, which Slurm sets
// from 23.02 on, or else what squeue says about SLURM_JOB_ID. Throws Error(kUsage) with the reason if
// there is no allocation, it has no end, or Slurm does not answer.
int64_t allocation_end(const AllocationSource& source);

// The environment and the programs of this process. Slurm has 20 s to answer.
AllocationSource this_allocation();

}  // namespace pushpull
