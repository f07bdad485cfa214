// The settings of a server. Plain data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/buffer_pool.h"
#include "common/job/barriers.h"
#include "common/job/job.h"
#include "common/layout/tensor_table.h"
#include "common/net/message.h"
#include "ps/engine/slice_engine.h"

namespace pushpull {

struct ServerSetup {
  uint64_t run = 0;          // of the job; secret
  uint64_t incarnation = 0;  // of this process
  uint64_t coordinator = 0;  // incarnation of the process that loads and fetches weights
  std::string grant_key;     // for Grants
  int rank = 0;
  int servers = 1;
  Job job;
  TensorTable table;
  Barriers barriers;
  int64_t total_steps = 0;              // horizon of the learning rate's schedule
  int64_t updates = 0;                  // of the loaded state
  int shares = 1;                       // of a step
  bool load = false;                    // initial weights arrive by Load
  bool replays = false;                 // replaces a lost server: pushes are sent again
  FloatAllocator memory = heap_floats;  // of the weights
  // Sums and updates for this server alone; null for the host engine, with weights in `memory`.
  std::shared_ptr<SliceEngine> engine;
};

// Returns the setup of the server that received `state`. Throws Error(kProtocol) if its tensors
// cannot be a model.
ServerSetup setup_of(const wire::State& state, uint64_t run, uint64_t incarnation, int servers,
                     const Job& job);

}  // namespace pushpull
