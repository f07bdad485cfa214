// Makes the record of a run and writes it when the job ends, successful or not. Does file I/O. Used
// by the coordinator's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/io/record.h"
#include "common/job/job.h"
#include "common/layout/tensor_table.h"
#include "common/net/shard_client.h"
#include "ps/coordinator/coordinator.h"

namespace pushpull {

// Returns the hash of names, shapes, update and init rules. A replay detects a different model by
// it.
std::string table_sha256(const TensorTable& table);

// Returns the weights that the init rules produce.
std::vector<float> initial_weights(const Job& job, const TensorTable& table);

// Describes the start of a run.
//   initial: loaded weights and optimizer state; null for init rules.
RecordedStart recorded_start(const Job& job, const TensorTable& table, const FlatState* initial,
                             bool resumed);

class RunRecorder {
 public:
  // Removes an earlier run's record. Throws Error(kIo) if the file cannot be written.
  explicit RunRecorder(const Job& job);

  void start(const Coordinator& coordinator, int servers, const FlatState* initial, bool resumed);
  bool started() const { return started_; }

  // Merges the servers' logs and writes the file, once. Does nothing before `start`. Returns true
  // if this call wrote it.
  //   ended: why the run is incomplete; "" if it is complete.
  // Throws Error(kIo) naming the file.
  bool finish(const Coordinator& coordinator, const std::string& weights_sha256,
              const std::string& ended);

 private:
  Job job_;
  bool started_ = false;
  bool written_ = false;
  RunRecord record_;
  VersionRules rules_;
};

}  // namespace pushpull
