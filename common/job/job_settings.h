// The settings of a job: reads them from their sources, and checks them against each other.
#pragma once

#include <map>
#include <string>

namespace pushpull {

struct Job;

// Reads settings from the job file, the environment and flags. Records the source of each and
// rejects unknown keys; job.cpp interprets the values. For job*.cpp and files of other trainers
// (cli/run/deepspeed_config.cpp) only; any thread.
struct Setting {
  std::string value;
  std::string source;  // "job.ini:3", "PUSHPULL_LR", "--lr"
};

using Settings = std::map<std::string, Setting>;  // by key

// Parses INI text without sections.
//   source: its name in messages.
// Throws Error(kUsage) with source:line for a line that is not `key = value`, an unknown key, or a
// key given twice.
Settings settings_of_text(const std::string& ini, const std::string& source);

// Reads a job file, UTF-8 with or without a byte order mark. Throws Error(kUsage) naming the path if it
// cannot be read, is larger than 1 MiB or is UTF-16, and as settings_of_text does.
Settings settings_of_file(const std::string& path);

// Reads PUSHPULL_<KEY>. Throws Error(kUsage) naming a PUSHPULL_ variable that is not a key, unless
// programs or tests read it themselves, or Kubernetes (for a Service) or a modulefile sets it.
Settings settings_of_environment();

// Throws Error(kUsage) naming an unknown key.
Settings settings_of_flags(const std::map<std::string, std::string>& flags);

// Checks settings against each other and against the number of workers. Any thread.
// Rejects settings that this number of workers makes impossible. Throws Error(kUsage) that names
// key and value.
void check_job_against_workers(const Job& job, int64_t workers);

// Checks the combinations that need no data. For job*.cpp only.
//   given: where each value came from, for messages.
// Throws Error(kUsage) that names the keys, their values and sources, and values that would work.
void check_combinations(const Job& job, const Settings& given);

}  // namespace pushpull
