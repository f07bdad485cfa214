// `pushpull replay`: recomputes a recorded run and compares its weights with the run's. Main
// thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/io/record.h"
#include "common/net/flat_state.h"

namespace pushpull {

struct ProgramHelp;
struct Job;
struct TensorTable;

// Returns the job to replay: the record's, with the paths and local settings of `given` (empty
// without --job). Throws Error(kUsage) with the keys that determine the weights and differ.
Job job_to_replay(const RunRecord& record, const std::optional<Job>& given,
                  const std::string& given_name);

// Returns the state that the run started from, or null for init rules.
//   checkpoint: folder; empty if none was given.
// Throws Error(kUsage | kData) if it is missing or is not what the run started from.
std::shared_ptr<const FlatState> start_to_replay(const RunRecord& record, const Job& job,
                                                 const TensorTable& table,
                                                 const std::string& checkpoint);

const ProgramHelp& replay_help();

// argv[0] is "replay". Returns the exit code; throws Error.
int replay_command(int argc, const char* const* argv);

}  // namespace pushpull
