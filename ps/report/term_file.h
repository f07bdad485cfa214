// The current term of a run, and its history before that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ps/members/declarations.h"
#include "ps/members/ended_run.h"

namespace pushpull {

// The history of a run before its running term: how it began, and how often it returned to a
// checkpoint. Plain data. Used by the coordinator's thread.
struct RunHistory {
  bool trained = false;                      // some term has begun to train
  int64_t first_step = 0;                    // first step of the run
  std::optional<int64_t> resumed_from_step;  // of its first term; empty for a fresh run
  double seconds = 0.0;                      // of training, in earlier coordinator processes
  int64_t recoveries = 0;                    // terms started because a server was lost
  int64_t steps_repeated = 0;
  int64_t checkpoints_failed = 0;              // checkpoints that could not be written
  int64_t workers_lost = 0;                    // in earlier terms
  int64_t quarantined = 0;                     // workers with a bad gradient, in earlier terms
  std::optional<EarlierDeclaration> declared;  // once some term has begun to train
  // SHA-256 of the weights that a worker gave for the run's start; "" if the run began otherwise.
  std::string own_weights_sha256 = {};
  int64_t reached_step = -1;  // when the previous term ended; -1 if it had not trained
};

// OUT/term.json: the state that a restarted coordinator needs to continue the run. The file exists
// until the coordinator ends, and is replaced before members learn of a new term or of the end of
// the run, so that no term number is used twice. Reads and writes a file. Used by the coordinator's
// thread.
struct TermRecord {
  int64_t term = 1;
  uint64_t run_id = 0;        // id of the first term
  std::string address;        // of the coordinator's control socket
  std::string job_ini;        // the run continues under the same job only
  bool started = false;       // training has started
  int64_t began_ms = 0;       // start of training, Unix time
  RunHistory history;         // without `seconds` and `reached_step`
  std::optional<RunEnd> end;  // if the run has ended
};

// Returns nothing if there is no file or it cannot be read.
std::optional<TermRecord> read_term(const std::string& out_dir);
// Is durable when it returns. Throws Error(kIo) naming the file.
void write_term(const std::string& out_dir, const TermRecord& record);
// Removes the file. Call when the run ends, successful or not.
void remove_term(const std::string& out_dir);

// Returns the newest step in OUT/metrics.jsonl, or -1.
int64_t newest_step_of_metrics(const std::string& out_dir);

}  // namespace pushpull
