// The history of a run before its running term: how it began, and how often it returned to a
// checkpoint. Plain data. Used by the coordinator's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ps/members/declarations.h"

namespace pushpull {

struct RunHistory {
  bool trained = false;                      // some term has begun to train
  int64_t first_step = 0;                    // first step of the run
  std::optional<int64_t> resumed_from_step;  // of its first term; empty for a fresh run
  double seconds = 0.0;                      // of training, in earlier coordinator processes
  int64_t recoveries = 0;                    // terms started because a server was lost
  int64_t steps_repeated = 0;
  int64_t checkpoints_failed = 0;              // checkpoints that could not be written
  int64_t quarantined = 0;                     // workers with a bad gradient, in earlier terms
  std::optional<EarlierDeclaration> declared;  // once some term has begun to train
  // SHA-256 of the weights that a worker gave for the run's start; "" if the run began otherwise.
  std::string own_weights_sha256 = {};
  int64_t reached_step = -1;  // when the previous term ended; -1 if it had not trained
};

}  // namespace pushpull
