// Facts about a job, besides its members, that users are shown. Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/net/message.h"
#include "ps/record/run_totals.h"
#include "ps/work/evaluations.h"

namespace pushpull {

struct JobFacts {
  wire::Phase phase = wire::PHASE_GATHERING;
  std::string waiting_for;  // while members are missing, else ""
  std::string failure;      // why the job failed, or ""
  uint64_t run = 0;         // shown as a digest only: it is a secret of the members
  std::string version;      // of the program
  std::string strategy;
  int servers = 0;  // number at the start of the job
  int workers = 0;
  std::string host;  // of the coordinator
  int64_t pid = 0;
  std::string out;    // absolute path of its output folder
  int64_t up_ms = 0;  // since the coordinator began

  // Set once the job trains:
  std::optional<int64_t> step;  // steps that are complete at server 0
  int64_t end_step = 0;         // end of this run
  int64_t epoch = 0;
  int64_t samples = 0;  // of this run
  double samples_per_second = 0.0;
  double learning_rate = 0.0;
  std::optional<double> loss;
  double staleness_mean = 0.0;
  int64_t staleness_max = 0;
  double seconds = 0.0;                  // since training began
  std::optional<double> eta_seconds;     // until the end at this rate
  std::map<int64_t, int64_t> staleness;  // updates so far by their staleness
  RunTotals totals;                      // of all members, as they have reported
  std::optional<Evaluation> evaluation;  // the newest one
  int64_t recoveries = 0;                // lost servers that the run has gone on without
  int64_t checkpoints_failed = 0;
};

}  // namespace pushpull
