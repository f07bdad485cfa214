// The flags of `pushpull compare` and their checks. Starts no process. Plain data after parsing;
// any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/report/compare_result.h"
#include "common/job/command_line.h"
#include "common/job/job.h"

namespace pushpull {

struct KeyHelp;
struct ProgramHelp;

// A job key and the values to try for it.
struct TuneKey {
  std::string key;
  std::vector<std::string> values;
};

struct CompareOptions {
  std::string job_file;                     // empty = all keys come from flags and environment
  std::map<std::string, std::string> keys;  // job keys, for every run
  std::vector<std::string> strategies;      // as Strategy::to_string() prints them
  std::vector<int64_t> workers;
  int64_t servers = 1;
  std::vector<uint64_t> seeds;
  std::optional<Target> target;
  bool target_is_accuracy = false;        // a share of the targets, from 0 to 1
  std::string straggler;                  // "0:4", from the job; empty = none
  std::vector<std::string> links = {""};  // "100mbit,5ms", as typed; empty = this machine's
                                          // loopback
  int64_t per_host = 1;                   // workers of each host of a link
  std::string over;                       // slurm or mpi; empty = this machine
  std::string over_args;                  // further words for srun or mpirun, as typed
  std::vector<std::string> codecs = {
      ""};                            // as Codec::to_string() prints them; empty = the job's own
  std::vector<int64_t> stages = {0};  // of a group of workers; 0 = the job's own
  std::vector<TuneKey> tune;
  std::string worker;  // command of the workers, as typed; empty = pushpull-worker
  // Values of flags of `pushpull run`; empty = the CPU.
  std::string device;  // of the workers
  std::string server_device;
  std::string out;
  bool insecure = false;  // --insecure for all processes
  bool keep_checkpoints = false;
  std::string command;  // as typed, for a shell
  Job job;              // under the first strategy and seed
};

const std::vector<KeyHelp>& compare_options();
const ProgramHelp& compare_help();

// Returns the command line with the values of repeated --tune flags, and of --link, joined in one
// flag.
std::vector<std::string> gather_repeated(int argc, const char* const* argv);

// Checks every flag, and the job under each strategy, seed and value of --tune. Throws
// Error(kUsage) with one line that names the flag and how to fix it.
CompareOptions parse_compare(const CommandLine& line, const std::string& command);

// Returns the keys that compare sets for every run of this strategy, overriding the job. Each run
// starts fresh in its own folder. Keys that the strategy does not support (staleness, codecs) are
// reset, so that a job with such keys runs under all strategies.
std::map<std::string, std::string> keys_of_strategy(const std::string& strategy);

// Returns the value of a job key as to_ini() prints it, or "" if there is no such key.
std::string job_value(const Job& job, const std::string& key);

// Returns the lines that are equal in all these jobs.
std::string shared_ini(const std::vector<Job>& jobs);

}  // namespace pushpull
