// The flags of `pushpull compare`, and all that can be checked before a process starts. Plain data
// after parsing; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/job/command_line.h"
#include "common/job/job.h"

namespace pushpull {

// A key of the job and the values to try.
struct TuneKey {
  std::string key;
  std::vector<std::string> values;
};

struct CompareOptions {
  std::string job_file;                     // empty: all keys come from flags and environment
  std::map<std::string, std::string> keys;  // of the job, for every run
  std::vector<std::string> strategies;      // as Strategy::to_string() writes them
  std::vector<int64_t> workers;
  int64_t servers = 1;
  std::vector<uint64_t> seeds;
  std::optional<double> target_accuracy;
  std::string straggler;                  // "0:4", the job's own; empty: none
  std::vector<std::string> links = {""};  // "100mbit,5ms", as typed; empty: this machine's loopback
  std::vector<std::string> codecs = {
      ""};  // as Codec::to_string() writes them; empty: the job's own
  std::vector<TuneKey> tune;
  // As `pushpull run` takes them; empty: the processor.
  std::string device;  // of the workers
  std::string server_device;
  std::string out;
  bool keep_checkpoints = false;
  std::string command;  // as it was typed, for a shell
  Job job;              // under the first strategy, first seed
};

const std::vector<KeyHelp>& compare_options();
std::string compare_help();

// The words with all values of --tune behind one flag, and so for --link: they may be given several
// times.
std::vector<std::string> gather_repeated(int argc, const char* const* argv);

// Checks every flag, and the job under each strategy, seed and value of --tune. Throws
// Error(kUsage) with one line that names the word and the way out.
CompareOptions parse_compare(const CommandLine& line, const std::string& command);

// The keys that compare sets for every run of this strategy, whatever the job says: a run starts
// anew in a folder of its own, and what only some strategies know (staleness, codecs) does not keep
// the others from running.
std::map<std::string, std::string> keys_of_strategy(const std::string& strategy);

// The text of a job's key as to_ini() writes it; empty where there is no such key.
std::string job_value(const Job& job, const std::string& key);

// The job's lines that are the same in all of these.
std::string shared_ini(const std::vector<Job>& jobs);

}  // namespace pushpull
