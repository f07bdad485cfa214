// Where settings come from: job file, environment, flags. Finds keys and where they stand, refuses
// unknown ones; what the values mean is for job_parse.cpp. Inside of job*.cpp only; any thread.
#pragma once

#include <map>
#include <string>

namespace pushpull {

struct Setting {
  std::string value;
  std::string source;  // "job.ini:3", "PUSHPULL_LR", "--lr"
};

using Settings = std::map<std::string, Setting>;  // by key

// INI without sections; `source` names it in messages. Throws Error(kUsage) with source:line for
// what is no `key = value`, an unknown key, or a key that stands there twice.
Settings settings_of_text(const std::string& ini, const std::string& source);

// Throws Error(kUsage) naming the path where it cannot be read or is no text file of sane size.
Settings settings_of_file(const std::string& path);

// PUSHPULL_<KEY>. Throws Error(kUsage) naming a PUSHPULL_ variable that is no key, except those
// that programs and tests read for themselves.
Settings settings_of_environment();

// Throws Error(kUsage) naming an unknown key.
Settings settings_of_flags(const std::map<std::string, std::string>& flags);

}  // namespace pushpull
