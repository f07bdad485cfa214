// Splits a loop over threads into ranges of neighbours. Where the ranges end depends on the number
// of threads, so a body must compute each index independently of the others: then the bits do not
// depend on that number. Used on the backend's thread.
#pragma once

#include <cstdint>

namespace pushpull::ops::cpu {

using RangeBody = void (*)(const void* body, int64_t begin, int64_t end);

// Calls `run(body, begin, end)` on ranges that cover [0, n), each of at least `grain` indices except
// the only one.
void split_range(int64_t n, int64_t grain, RangeBody run, const void* body);

// Calls body(begin, end) on ranges that cover [0, n).
//   grain: fewest indices that are worth a thread.
template <class Body>
void in_ranges(int64_t n, int64_t grain, const Body& body) {
  const auto run = [](const void* state, int64_t begin, int64_t end) {
    (*static_cast<const Body*>(state))(begin, end);
  };
  split_range(n, grain, run, &body);
}

// Returns the index of the calling thread, less than the backend's number of threads.
int64_t thread_index();

// Elements of a cheap loop that are worth a thread.
constexpr int64_t kGrain = 16'384;

// Returns the rows of so many elements that are worth a thread.
constexpr int64_t rows_of_grain(int64_t width) { return 1 + (kGrain - 1) / width; }

}  // namespace pushpull::ops::cpu
