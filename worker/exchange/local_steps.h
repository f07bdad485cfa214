// The local steps of a worker under local:H (Stich, Local SGD Converges Fast and Communicates
// Little, arXiv 1805.09767; DiLoCo, arXiv 2311.08105): the job's optimizer updates a copy of the
// pulled weights, and the worker pushes the change. Depends on no connection and no model. Not
// thread-safe.
//
// The worker keeps one optimizer state for each of its shares from round to round. It begins at
// zero, also if another worker had the share before.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/layout/slice_map.h"
#include "common/net/message.h"
#include "common/update/range_update.h"

namespace pushpull {

struct Job;

// Allocators for floats that servers read.
struct LocalMemory {
  FloatAllocator pushed = heap_floats;
  FloatAllocator weights = heap_floats;
};

class LocalSteps {
 public:
  using SliceReady = std::function<void(int slice, Payload part)>;

  // total_steps: horizon of the learning rate's schedule. Borrows the job.
  LocalSteps(const Job& job, const TensorTable& table, const SliceMap& map, int64_t total_steps,
             const LocalMemory& memory = {});

  // Starts a round of a share at these weights.
  void begin(Range share, std::span<const float> weights);
  // The weights for the next gradient.
  std::span<const float> weights() const {
    return {weights_.get(), static_cast<size_t>(whole_.size())};
  }
  // Applies one update.
  //   sum: the gradients of the share's micro-batches, summed; the flat vector.
  void step(int64_t step, std::span<const float> sum);
  // Passes the change of the round to `ready`, slice by slice: micro-batches of the share times
  // (start - end).
  //   start: the weights of `begin`.
  void finish(std::span<const float> start, const SliceReady& ready);

 private:
  struct State {
    std::vector<std::vector<float>> vectors;  // of the optimizer
    int64_t updates = 0;
  };
  double clip_of(std::span<const float> sum, double divisor) const;

  const Job& job_;
  SliceMap map_;
  int64_t total_steps_;
  RangeUpdate whole_;
  std::shared_ptr<float[]> weights_;
  std::map<Range, State> states_;  // by share
  Range share_;
  BufferPool pool_;
};

}  // namespace pushpull
