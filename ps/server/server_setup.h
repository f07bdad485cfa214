// The settings that a server is made from. Plain data; any thread.
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
  uint64_t run = 0;          // of the job: strangers do not know it
  uint64_t incarnation = 0;  // of this process
  uint64_t coordinator = 0;  // incarnation of whoever loads and fetches weights
  std::string grant_key;     // of Grants, which pushes are checked with
  int rank = 0;
  int servers = 1;
  Job job;
  TensorTable table;
  Barriers barriers;
  int64_t total_steps = 0;              // schedule horizon
  int64_t updates = 0;                  // that the loaded state has had
  int shares = 1;                       // shares that a step is cut into
  bool load = false;                    // initial weights come by Load
  bool replays = false;                 // in a lost server's place: pushes come again
  FloatAllocator memory = heap_floats;  // of the weights
  // Sums and updates, for this server alone; null: the host, with weights in `memory`.
  std::shared_ptr<SliceEngine> engine;
};

// The setup of the server that `state` was sent to. Throws Error(kProtocol) where its tensors
// cannot be a model.
ServerSetup setup_of(const wire::State& state, uint64_t run, uint64_t incarnation, int servers,
                     const Job& job);

}  // namespace pushpull
