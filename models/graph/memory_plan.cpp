#include "models/graph/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/error.h"

namespace pushpull {

namespace {

bool overlap(const Region& a, const Region& b) { return a.first <= b.last && b.first <= a.last; }

// Returns the largest sum of sizes that are alive at one event. It is reached where a region begins.
size_t largest_live(const std::vector<Region>& regions, const std::vector<size_t>& sizes) {
  size_t largest = 0;
  for (const Region& at : regions) {
    size_t live = 0;
    for (size_t i = 0; i < regions.size(); ++i) {
      if (regions[i].first <= at.first && at.first <= regions[i].last) live += sizes[i];
    }
    largest = std::max(largest, live);
  }
  return largest;
}

// Returns the lowest offset with room for `bytes` between the taken ranges [begin, end).
size_t lowest_gap(std::vector<std::pair<size_t, size_t>> taken, size_t bytes) {
  std::sort(taken.begin(), taken.end());
  size_t offset = 0;
  for (const auto& [begin, end] : taken) {
    if (begin >= offset + bytes) break;
    offset = std::max(offset, end);
  }
  return offset;
}

}  // namespace

MemoryPlan plan_memory(const std::vector<Region>& regions, size_t alignment) {
  PP_ASSERT(alignment > 0 && (alignment & (alignment - 1)) == 0);
  std::vector<size_t> sizes;
  for (const Region& region : regions) {
    PP_ASSERT(region.first <= region.last);
    sizes.push_back((region.bytes + alignment - 1) / alignment * alignment);
  }
  std::vector<size_t> order(regions.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });

  MemoryPlan plan;
  plan.offsets.resize(regions.size());
  plan.largest_live = largest_live(regions, sizes);
  for (size_t n = 0; n < order.size(); ++n) {
    const size_t own = order[n];
    std::vector<std::pair<size_t, size_t>> taken;
    for (size_t k = 0; k < n; ++k) {
      const size_t other = order[k];
      if (!overlap(regions[own], regions[other])) continue;
      taken.emplace_back(plan.offsets[other], plan.offsets[other] + sizes[other]);
    }
    plan.offsets[own] = lowest_gap(std::move(taken), sizes[own]);
    plan.bytes = std::max(plan.bytes, plan.offsets[own] + sizes[own]);
  }
  return plan;
}

}  // namespace pushpull
