// What a run has been through before its running term: how it began, and how often it went back to a
// checkpoint. Plain data; the coordinator's thread.
#pragma once

#include <cstdint>
#include <optional>

namespace pushpull {

struct RunHistory {
  int64_t first_step = 0;                    // of the run
  std::optional<int64_t> resumed_from_step;  // by its first term; empty: it began afresh
  double seconds = 0.0;                      // of training in earlier lives of the coordinator
  int64_t recoveries = 0;                    // terms that began because a server was lost
  int64_t steps_repeated = 0;
  int64_t checkpoints_failed = 0;  // that could not be written
  int64_t quarantined = 0;         // workers with a bad gradient, in earlier terms
  int64_t reached_step = -1;       // when the term before was left; -1: it had not begun to train
};

}  // namespace pushpull
