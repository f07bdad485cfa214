// OUT/term.json: the state that a restarted coordinator needs to continue the run. The file exists
// while the run is unfinished, and is replaced before members learn of a new term, so that no term
// number is used twice. Reads and writes a file. Used by the coordinator's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ps/files/run_history.h"

namespace pushpull {

struct TermRecord {
  int64_t term = 1;
  uint64_t first_run = 0;  // id of the first term
  std::string address;     // of the coordinator's control socket
  std::string job_ini;     // the run continues under the same job only
  bool started = false;    // training has started
  int64_t began_ms = 0;    // start of training, Unix time
  RunHistory history;      // without `seconds` and `reached_step`
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
