// The flags of `pushpull bench`, and all that can be checked before a process starts. Plain data
// after parsing; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/job/command_line.h"
#include "common/job/job.h"
#include "common/update/optimizer.h"

namespace pushpull {

struct BenchOptions {
  std::vector<int64_t> bytes;  // of the tensor, in the order of the rows
  std::vector<Transport> transports;
  int64_t workers = 2;
  int64_t servers = 1;
  OptimizerKind optimizer = OptimizerKind::kMomentum;
  int64_t steps = 0;                        // measured ones of each exchange; 0: by the size
  std::map<std::string, std::string> keys;  // of the job, what may be tuned: slice-bytes, ...
  std::string join;     // tcp://HOST:PORT of servers that run already; empty: starts its own
  std::string out;      // file for the JSON; empty: none
  std::string command;  // as it was typed, for a shell
};

const std::vector<KeyHelp>& bench_options();
std::string bench_help();

// "shm", "tcp", "ipc".
std::string transport_name(Transport transport);

// Checks every flag. memory_bytes: what this machine has to give. Throws Error(kUsage) with one
// line that names the word and the way out.
BenchOptions parse_bench(const CommandLine& line, const std::string& command, int64_t memory_bytes);

// About what all processes of one exchange need at once.
int64_t memory_of_exchange(int64_t bytes, int64_t workers, OptimizerKind optimizer);

// Memory that can be had without swapping, as Linux sees it (/proc/meminfo, MemAvailable).
int64_t available_memory();

}  // namespace pushpull
