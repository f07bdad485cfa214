// The local steps of a worker under local:H (Stich, Local SGD Converges Fast and Communicates
// Little, arXiv 1805.09767; DiLoCo, arXiv 2311.08105): the job's optimizer moves a copy of the
// pulled weights, and what is pushed is how far they have come. Knows no connection and no model.
// One thread.
//
// Optimizer state stays with the worker from round to round, one for each share that it computes;
// it begins at zero, also where another worker had the share before.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/job/job.h"
#include "common/layout/slice_map.h"
#include "common/net/message.h"
#include "common/update/range_update.h"

namespace pushpull {

// Memory for floats that others read.
struct LocalMemory {
  FloatAllocator pushed = heap_floats;
  FloatAllocator weights = heap_floats;
};

class LocalSteps {
 public:
  using SliceReady = std::function<void(int slice, Payload part)>;

  // total_steps: schedule horizon. Borrows the job.
  LocalSteps(const Job& job, const TensorTable& table, const SliceMap& map, int64_t total_steps,
             const LocalMemory& memory = {});

  // A round of a share begins at these weights.
  void begin(Range share, std::span<const float> weights);
  // The weights at which the next gradient is to be computed.
  std::span<const float> weights() const {
    return {weights_.get(), static_cast<size_t>(whole_.size())};
  }
  // One update by the gradients of the share's micro-batches.
  //   sum: over them, of the flat vector.
  void step(int64_t step, std::span<const float> sum);
  // The change since `start`, what begin() was given: micro-batches of the share times (start -
  // end), slice by slice.
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
