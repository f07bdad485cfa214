// The table of the job's keys: how each one is parsed, printed, explained, and treated at a resume.
// For job*.cpp only; others use common/job/job.h. Constant after the first call; any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/job.h"
#include "common/job/key_help.h"

namespace pushpull {

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
