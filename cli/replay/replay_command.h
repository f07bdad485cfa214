// `pushpull replay`: recomputes a recorded run and compares its weights with the run's.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/io/record.h"
#include "common/job/job.h"
#include "common/layout/tensor_table.h"
#include "common/net/shard_client.h"

namespace pushpull {

// The job that is replayed: the record's, with what a job file says of where things lie. given:
// empty where there is no --job. Throws Error(kUsage) naming the keys that shape the weights and
// differ.
Job job_to_replay(const RunRecord& record, const std::optional<Job>& given,
                  const std::string& given_name);

// What the run was started from; null for init rules. checkpoint: folder, empty where none was
// given. Throws Error(kUsage | kData) where it is missing or is not what the run began with.
std::shared_ptr<const FlatState> start_to_replay(const RunRecord& record, const Job& job,
                                                 const TensorTable& table,
                                                 const std::string& checkpoint);

// argv[0] is "replay". Returns the exit code; throws Error.
int replay_command(int argc, const char* const* argv);

}  // namespace pushpull
