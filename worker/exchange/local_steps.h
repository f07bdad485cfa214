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
#include <optional>
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

// What a worker of a group trains; by default all of an undivided model.
struct LocalPart {
  int stage = 0;                  // whose elements it updates
  std::vector<Range> reads = {};  // elements whose weights it reads; empty: all
};

class LocalSteps {
 public:
  using SliceReady = std::function<void(int slice, Payload part)>;

  // total_steps: horizon of the learning rate's schedule. Borrows the job.
  LocalSteps(const Job& job, const TensorTable& table, const SliceMap& map, int64_t total_steps,
             const LocalMemory& memory = {}, LocalPart part = {});

  // Starts a round of a share at these weights.
  void begin(Range share, std::span<const float> weights);
  // The weights for the next gradient.
  std::span<float> weights() { return {weights_.get(), static_cast<size_t>(map_.total())}; }
  // Applies one update.
  //   sum: the gradients of the share's micro-batches, summed; the flat vector.
  //   squares: squared norm of their mean; for clip-norm. rate: that the model's program has said.
  void step(int64_t step, std::span<const float> sum, double squares,
            std::optional<double> rate = {});
  // Drops the optimizer's states.
  void forget() { states_.clear(); }
  // Passes the change of the round to `ready`, slice by slice: micro-batches of the share times
  // (start - end).
  //   start: the weights of `begin`.
  void finish(std::span<const float> start, const SliceReady& ready);

 private:
  struct State {
    std::vector<std::vector<float>> vectors;  // of the optimizer
    int64_t updates = 0;
  };

  const Job& job_;
  SliceMap map_;
  int64_t total_steps_;
  const LocalPart part_;
  const Range owned_;  // elements
  const TensorTable table_;
  RangeUpdate update_;
  std::shared_ptr<float[]> weights_;
  std::map<Range, State> states_;  // by share
  Range share_;
  BufferPool pool_;
};

}  // namespace pushpull
