// Passes weights that have changed in one stage of a group to the stages that read them too: tied weights, and
// elements in a block of another stage. They go the way of their gradients backwards (stage_parts.h), from the
// stage that owns them to the last reader. Single-threaded.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/buffer_pool.h"
#include "worker/compute/stage_exchange.h"
#include "worker/compute/stage_parts.h"

namespace pushpull {

class StageWeights {
 public:
  // parts: of the stage. Borrows the exchange.
  StageWeights(const StageParts& parts, StageExchange& exchange);

  // Completes the flat vector, of which the stage has changed the elements that it owns. All stages call it with
  // the same step and index, once in an attempt. Throws as StageExchange::receive.
  void share(int64_t step, int64_t index, float* weights);

 private:
  struct Sent {
    StageParts::Returned part;
    BufferPool pool;
  };
  const std::vector<StageParts::Returned> received_;
  std::vector<Sent> sent_;
  StageExchange& exchange_;
};

}  // namespace pushpull
