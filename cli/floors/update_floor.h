// The floor of an update: the plainest loop over memory that reads each gradient, weights and state
// once and writes weights and state once. It says what memory allows: its arithmetic is the least
// that touches every vector, so adam has no division and no root here. Whoever prints the floor of
// an update measures this one: `pushpull bench`, floors_bench, optimizer_bench, server_step_bench.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cli/floors/floats.h"
#include "common/base/parallel.h"
#include "common/update/optimizer.h"

namespace pushpull {

// The vectors, all of their pages touched, and passes over them.
class UpdateFloor {
 public:
  // bytes: of the weights, of each gradient and of each vector of state.
  // states: 0, 1 (momentum) or 2 (adam).
  UpdateFloor(int64_t bytes, int64_t gradients, size_t states);

  int64_t elements() const { return elements_; }
  // One pass over elements [lo, hi). Threads may pass over different elements at a time.
  void pass(int64_t lo, int64_t hi);
  // One pass over all of them, in as many parts as `parallel` has threads.
  void pass(Parallel& parallel);

  const float* gradient(size_t index) const { return gradients_[index].get(); }
  const float* weights() const { return weights_.get(); }

 private:
  int64_t elements_;
  std::vector<floors::Floats> gradients_;
  std::vector<floors::Floats> state_;
  floors::Floats weights_;
};

// Median time of a pass in microseconds, of the fastest number of threads. Starts threads, which
// have ended when it returns.
double update_floor_us(int64_t bytes, int64_t gradients, OptimizerKind optimizer);

}  // namespace pushpull
