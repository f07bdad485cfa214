// OUT/term.json: what a restarted coordinator must know to go on with the run that its earlier life
// has left. It is there while the run goes on, and is replaced before members hear of a new term: a
// term's number is never used twice. Reads and writes a file; the coordinator's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ps/files/run_history.h"

namespace pushpull {

struct TermRecord {
  int64_t term = 1;
  uint64_t first_run = 0;  // of the first term
  std::string address;     // where the coordinator listens
  std::string job_ini;     // a run goes on under the same job only
  bool started = false;    // it has begun to train
  int64_t began_ms = 0;    // ... at this time (Unix)
  RunHistory history;      // but `seconds` and `reached_step`
};

// Empty: there is none, or none that can be read.
std::optional<TermRecord> read_term(const std::string& out_dir);
// Durable when it returns. Throws Error(kIo) naming the file.
void write_term(const std::string& out_dir, const TermRecord& record);
// The run has come to its end, in whatever way.
void remove_term(const std::string& out_dir);

// The newest step in OUT/metrics.jsonl; -1: none.
int64_t newest_step_of_metrics(const std::string& out_dir);

}  // namespace pushpull
