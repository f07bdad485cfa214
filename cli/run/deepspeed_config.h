// --deepspeed FILE: a configuration of DeepSpeed (ds_config.json) as keys of the job. Its keys that change results become keys of
// the job or are refused; those that do not are named in a line. Source: DeepSpeed, docs/_pages/config-json.md,
// runtime/config.py, runtime/engine.py (_configure_basic_optimizer), runtime/lr_schedules.py. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/job/command_line.h"
#include "common/job/job_keys.h"

namespace pushpull {

struct DeepSpeedKeys {
  std::map<std::string, std::string> keys;  // of the job
  // Values "auto", which the Trainer of Hugging Face fills in: the key of the job that must have a
  // value from elsewhere -> where the file has it.
  std::map<std::string, std::string> missing;
  std::vector<std::string> notes;  // for the user, one line each
};

// Reads the text of a configuration.
//   file: its name in messages.
//   lr: the learning rate that counts instead of the file's, for rates that are parts of it; 0: none.
//   workers: gradient_accumulation_steps counts micro-batches of each; 0: unknown.
// Throws Error(kUsage) that names the key, its value and what would work.
DeepSpeedKeys read_deepspeed(const std::string& text, const std::string& file, double lr,
                             int64_t workers);

// The flag.
KeyHelp deepspeed_help();

// Adds the keys of --deepspeed, if it is given, to `line.keys`, where flags and PUSHPULL_ variables come
// before them. Returns lines for the user.
//   workers: as above.
// Throws Error(kUsage) as read_deepspeed does, if the file cannot be read, or if --job FILE has another value of a key.
std::vector<std::string> add_deepspeed_keys(CommandLine& line, int64_t workers);

}  // namespace pushpull
