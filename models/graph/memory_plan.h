// Places regions of memory with known lifetimes in one arena, so that regions that are never alive
// at the same time share memory. Pure arithmetic; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pushpull {

// Memory that is alive during the events first..last, both included.
struct Region {
  size_t bytes = 0;
  int32_t first = 0;
  int32_t last = 0;
};

struct MemoryPlan {
  std::vector<size_t> offsets;  // of each region, in bytes; multiples of the alignment
  size_t bytes = 0;             // of the arena
  size_t largest_live =
      0;  // largest sum of the regions alive at one event: a lower bound of `bytes`
};

// Places the largest regions first, each at the lowest offset where no region with an overlapping
// lifetime is ("greedy by size", Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net
// Inference, arXiv:2001.03288). Equal regions give equal plans.
//   alignment: of offsets and of sizes, in bytes; a power of two.
MemoryPlan plan_memory(const std::vector<Region>& regions, size_t alignment);

}  // namespace pushpull
