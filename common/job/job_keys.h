// The table of the job's keys: how each one is parsed, printed, explained, and treated at a resume.
// For job*.cpp only; others use common/job/job.h. Constant after the first call; any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/job/job.h"

namespace pushpull {

// The keys of the job and the flags of programs as help and reference show them. Plain data.
//
// One key of the job, or one flag of a program, as help and reference show it.
struct KeyHelp {
  std::string key;
  std::string value_default;  // as users read it; "" if there is none
  std::string text;
  std::string group = {};   // heading in the help: "Model", "Data", ...
  bool takes_value = true;  // always for job keys; a program's own flag may be a switch
  // Shells complete this: FILE, DIR, or words between '|'; "": nothing. They add no blank after a word
  // that ends with ':'. kMoreValues at the end: several of the words, between commas.
  std::string value = {};
};

inline constexpr std::string_view kMoreValues = ",...";

// The values of --device.
inline constexpr const char* kDeviceWords = "cpu|auto|cuda|cuda:";

// The values of codec and `pushpull compare --codecs`.
inline constexpr const char* kCodecWords = "fp32|fp16|bf16|int8|topk:";

// Returns the option with this KeyHelp::value.
inline KeyHelp takes(std::string value, KeyHelp option) {
  option.value = std::move(value);
  return option;
}

// Returns all keys with defaults and one line of help, in the order of docs/job-file.md.
const std::vector<KeyHelp>& job_keys();

// Turns "global-batch" into "PUSHPULL_GLOBAL_BATCH".
std::string environment_name(const std::string& key);

enum class AtResume {
  kFixed,      // determines the weights: another value makes another job
  kMayChange,  // only where and how the job runs
  kHorizon,    // epochs, steps: may change unless the schedule depends on the total (cosine)
};

struct JobKey {
  KeyHelp help;
  std::string expects;  // "a number > 0"; completes "must be ..."
  AtResume at_resume = AtResume::kFixed;
  std::function<bool(Job& job, const std::string& text)> set;  // false if the text is not valid
  std::function<std::string(const Job& job)> get;              // text that `set` parses
};

// Completes "must be ..." for an invalid straggler.
inline constexpr std::string_view kStragglerWords =
    "RANK:FACTOR, a worker's rank and how many times slower it computes, from 1 to 1000, such as "
    "0:4, or none";

const std::vector<JobKey>& job_key_table();

// Returns null if there is no such key.
const JobKey* find_job_key(const std::string& key);

// Returns all keys, for suggestions.
const std::vector<std::string>& job_key_names();

}  // namespace pushpull
