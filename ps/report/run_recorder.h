// Makes the record of a run: writes one without updates when training starts, and returns the whole
// one when the job ends, successful or not. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/io/checkpoint.h"
#include "common/io/record.h"
#include "common/job/job.h"
#include "common/net/flat_state.h"
#include "ps/members/declarations.h"
#include "ps/members/membership.h"
#include "ps/server/update_logs.h"

namespace pushpull {

struct TensorTable;

// Returns the hash of names, shapes, update and init rules. A replay detects a different model by
// it.
std::string table_sha256(const TensorTable& table);

// Returns the weights that the init rules produce.
std::vector<float> initial_weights(const Job& job, const TensorTable& table);
// Returns the weights of the job's init-from, where init-from-missing allows it with initial_weights
// for tensors that the file lacks. Throws as read_initial_weights does.
InitialWeights weights_of_file(const Job& job, const TensorTable& table);

// Describes the start of a run.
//   initial: loaded weights and optimizer state; null for init rules.
RecordedStart recorded_start(const Job& job, const TensorTable& table, const FlatState* initial,
                             bool resumed);

class RunRecorder {
 public:
  // Checks that the record can be written, and leaves an earlier run's record. Throws Error(kIo) if
  // not.
  explicit RunRecorder(const Job& job);

  // Replaces an earlier run's record by one of this run without updates, which says that it is
  // incomplete. Throws Error(kIo) naming the file.
  //   initial: loaded weights and optimizer state; null for init rules.
  void start(const Declaration& declaration, int servers, const FlatState* initial, bool resumed);
  bool started() const { return started_; }

  // Merges the servers' logs. Returns the whole record, once and only after `start`; the caller
  // writes it.
  //   logs: null if the running term has none yet; the record then has no updates.
  //   failed: the push that ended the job, if one did.
  //   ended: why the run is incomplete; "" if it is complete.
  std::optional<RunRecord> complete(const ServerLogs* logs, const Membership& members,
                                    const std::optional<RecordedPush>& failed,
                                    const std::string& weights_sha256, const std::string& ended);

 private:
  Job job_;
  bool started_ = false;
  bool complete_ = false;
  RunRecord record_;
  VersionRules rules_;
};

}  // namespace pushpull
