// The flags of `pushpull bench` and their checks. Starts no process. Plain data after parsing; any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/job/command_line.h"
#include "common/job/job.h"
#include "common/update/optimizer_options.h"

namespace pushpull {

struct KeyHelp;
struct ProgramHelp;

struct BenchOptions {
  std::vector<int64_t> bytes;  // tensor sizes, in the order of the rows
  std::vector<Transport> transports;
  int64_t workers = 2;
  int64_t servers = 1;
  OptimizerKind optimizer = OptimizerKind::kMomentum;
  int64_t steps = 0;                        // measured steps of each exchange; 0 = chosen by size
  std::map<std::string, std::string> keys;  // job keys that bench accepts: slice-bytes, ...
  std::string join;       // tcp://HOST:PORT of running servers; empty = start servers
  bool insecure = false;  // --insecure for all processes
  std::string out;        // path of the JSON file; empty = none
  std::string command;    // as typed, for a shell
};

const std::vector<KeyHelp>& bench_options();
const ProgramHelp& bench_help();

// Returns "shm", "tcp" or "ipc".
std::string transport_name(Transport transport);

// Checks every flag and returns the options.
//   memory_bytes: available memory of this machine.
// Throws Error(kUsage) with one line that names the flag and how to fix it.
BenchOptions parse_bench(const CommandLine& line, const std::string& command, int64_t memory_bytes);

// Returns the approximate memory of all processes of one exchange, in bytes.
int64_t memory_of_exchange(int64_t bytes, int64_t workers, OptimizerKind optimizer);

// Returns the memory available without swapping, in bytes (/proc/meminfo, MemAvailable).
int64_t available_memory();

}  // namespace pushpull
