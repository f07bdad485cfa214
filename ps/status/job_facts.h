// What people are told about a job besides its members. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/net/message.h"

namespace pushpull {

struct JobFacts {
  wire::Phase phase = wire::PHASE_GATHERING;
  std::string waiting_for;  // while it gathers its members; "": they are there
  std::string failure;      // why it has failed; "": it has not
  uint64_t run = 0;         // shown as a digest only: members prove with it that they belong here
  std::string version;      // of the program
  std::string strategy;
  int servers = 0;  // that it was started for
  int workers = 0;
  std::string host;  // of the coordinator
  int64_t pid = 0;
  std::string out;    // folder of its output there, absolute
  int64_t up_ms = 0;  // since the coordinator began

  // Once it trains:
  std::optional<int64_t> step;  // steps that are whole at server 0
  int64_t end_step = 0;         // where this run ends
  int64_t epoch = 0;
  int64_t samples = 0;  // of this run
  double samples_per_second = 0.0;
  double learning_rate = 0.0;
  std::optional<double> loss;
  double staleness_mean = 0.0;
  int64_t staleness_max = 0;
  double seconds = 0.0;               // since training began
  std::optional<double> eta_seconds;  // until it ends at this rate
};

}  // namespace pushpull
