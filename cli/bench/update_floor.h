// The floor of an update: the plainest loop that reads each gradient, weights and state once and
// writes weights and state once. It measures memory bandwidth; its arithmetic is the least that
// touches every vector, so adam has no division and no root here. `pushpull bench`, floors_bench,
// optimizer_bench and server_step_bench share this definition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cli/bench/floats.h"
#include "common/base/thread_pool.h"
#include "common/update/optimizer_options.h"

namespace pushpull {

// Holds the vectors, with all pages touched, and runs passes over them.
class UpdateFloor {
 public:
  // bytes: size of the weights, of each gradient and of each vector of state.
  // states: 0, 1 (momentum) or 2 (adam).
  UpdateFloor(int64_t bytes, int64_t gradients, size_t states);

  int64_t elements() const { return elements_; }
  // Runs one pass over elements [lo, hi). Threads may process different ranges at the same time.
  void pass(int64_t lo, int64_t hi);
  // Runs one pass over all elements, split over the threads of `parallel`.
  void pass(Parallel& parallel);

  const float* gradient(size_t index) const { return gradients_[index].get(); }
  const float* weights() const { return weights_.get(); }

 private:
  int64_t elements_;
  std::vector<floors::Floats> gradients_;
  std::vector<floors::Floats> state_;
  floors::Floats weights_;
};

// Returns the median time of a pass in microseconds, with the fastest number of threads. Starts
// threads and joins them before it returns.
double update_floor_us(int64_t bytes, int64_t gradients, OptimizerKind optimizer);

}  // namespace pushpull
