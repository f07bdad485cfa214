// Places regions of memory with known lifetimes in one arena, so that regions that are never alive
// at the same time share memory. Pure arithmetic; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/graph.h"
#include "models/ops/operation.h"

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

// Where a planned graph keeps its values, gradients and what operations keep from forward to
// backward: regions of one arena with lifetimes. Pure arithmetic; any thread.
//
// Time is counted in events: forward of each node, forward of each head, backward of each head from
// the last one, backward of each node from the last one.

// The needs of all plans, and the sizes of all values.
struct GraphNeeds {
  std::vector<ops::Needs> nodes;
  std::vector<ops::Needs> heads;
  std::vector<size_t> value_bytes;
  std::vector<bool> padded;  // values whose memory is larger than their elements
};

// Regions are indices of `plan.offsets`; -1: there is none.
struct GraphMemory {
  // Places of an operation's backward that are not a value's gradient yet: a second reader of a
  // value (or of a parameter) writes here, and the sum is made afterwards.
  struct Node {
    std::array<int32_t, ops::kMaxInputs> sums{-1, -1, -1, -1};
    std::array<int32_t, ops::kMaxParams> param_sums{-1, -1, -1, -1};
    uint32_t adds = 0;  // parameters to which the operation adds by itself
    int32_t kept = -1;
  };
  MemoryPlan plan;
  std::vector<int32_t> values;     // -1: a field, or a view of one
  std::vector<int32_t> gradients;  // -1: not wanted
  std::vector<Node> nodes;
  std::vector<Node> heads;
  int32_t results = -1;     // f32: losses of all heads; then i32: predictions of all heads
  size_t result_words = 0;  // of the losses
};

GraphMemory plan_graph_memory(const Graph& graph, const GraphNeeds& needs);

}  // namespace pushpull
