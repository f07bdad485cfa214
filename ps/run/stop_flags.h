// The flags of stops and of checkpoints by a signal, and the end of the allocation that they ask
// for.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/command_line.h"
#include "common/job/job_keys.h"
#include "ps/run/stop_options.h"

namespace pushpull {

// The end of the batch job that this process runs in, from Slurm. Any thread.

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

// The flags of stops and of checkpoints by a signal, of the first server and of `pushpull run`. Any
// thread.

// The names of these flags, which `pushpull run` passes to the first server.
inline constexpr const char* kStopFlags[] = {"checkpoint-signal", "grace", "stop-before",
                                             "stop-at"};

// Returns `flags` with those of stops.
std::vector<KeyHelp> with_stop_flags(std::vector<KeyHelp> flags);

// Returns the signal that `text` names: "USR1", "SIGUSR1" or "10"; 0 for "none". Throws Error(kUsage)
// for a name or number of no signal, and for a signal that ends, stops or reports a fault of a
// process.
int parse_checkpoint_signal(const std::string& text);

// Returns the time in milliseconds since 1970, or nothing. Accepts "2026-01-31T23:59:59Z" (UTC; the
// seconds may be absent) and seconds since 1970.
std::optional<int64_t> parse_utc_ms(std::string_view text);

// Returns what the flags say. Does not ask for the allocation's end. Throws Error(kUsage).
StopOptions stop_options(const CommandLine& line);

// Adds the time at which the job stops by itself, from --stop-at or from the allocation's end. Throws
// Error(kUsage) if --stop-before finds no end, or if that time has passed.
//   unfinished: returns true if the process goes on with a run that another one has left, which then
//   stops at once.
StopOptions with_limit(StopOptions options, const CommandLine& line, const AllocationSource& source,
                       const std::function<bool()>& unfinished);

}  // namespace pushpull
