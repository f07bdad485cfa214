// The keys of the job and the flags of programs as help and reference show them. Plain data.
#pragma once

#include <string>
#include <vector>

namespace pushpull {

// One key of the job, or one flag of a program, as help and reference show it.
struct KeyHelp {
  std::string key;
  std::string value_default;  // as users read it; "" if there is none
  std::string text;
  std::string group = {};   // heading in the help: "Model", "Data", ...
  bool takes_value = true;  // always for job keys; a program's own flag may be a switch
};

// Returns all keys with defaults and one line of help, in the order of docs/job-file.md.
const std::vector<KeyHelp>& job_keys();

// Turns "global-batch" into "PUSHPULL_GLOBAL_BATCH".
std::string environment_name(const std::string& key);

}  // namespace pushpull
