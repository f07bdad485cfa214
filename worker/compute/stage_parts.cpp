#include "worker/compute/stage_parts.h"

#include <algorithm>
#include <map>

#include "common/base/error.h"

namespace pushpull {

namespace {

using TensorsRead = std::vector<std::vector<size_t>>;

Range common_part(Range a, Range b) {
  const Range both{std::max(a.lo, b.lo), std::min(a.hi, b.hi)};
  return both.lo < both.hi ? both : Range{};
}

// Appends a range behind the others.
void append(std::vector<Range>& ranges, Range range) {
  if (range.size() == 0) return;
  if (!ranges.empty() && ranges.back().hi == range.lo) {
    ranges.back().hi = range.hi;
  } else {
    ranges.push_back(range);
  }
}

// Returns the last stage before this one that reads the tensor; -1: there is none.
int reader_before(const TensorsRead& tensors_read, int stage, size_t tensor) {
  while (--stage >= 0) {
    if (std::ranges::binary_search(tensors_read[static_cast<size_t>(stage)], tensor)) break;
  }
  return stage;
}

std::vector<StageParts::Returned> returned_by(const TensorTable& table, const SliceMap& map,
                                              const TensorsRead& tensors_read, int stage) {
  std::map<int, std::vector<Range>> to;
  for (const size_t tensor : tensors_read[static_cast<size_t>(stage)]) {
    const TensorInfo& info = table.tensors[tensor];
    const Range elements{info.offset, info.offset + info.size};
    if (const int before = reader_before(tensors_read, stage, tensor); before >= 0) {
      append(to[before], elements);
      continue;
    }
    for (int owner = 0; owner < stage; ++owner) {
      append(to[owner], common_part(map.elements_of_stage(owner), elements));
    }
  }
  std::vector<StageParts::Returned> out;
  for (auto& [peer, ranges] : to) {
    if (!ranges.empty()) out.push_back({peer, std::move(ranges)});
  }
  return out;
}

}  // namespace

size_t StageParts::Returned::floats() const {
  int64_t floats = 0;
  for (const Range& range : ranges) floats += range.size();
  return static_cast<size_t>(floats);
}

StageParts stage_parts(const TensorTable& table, const SliceMap& map,
                       const TensorsRead& tensors_read, int stage) {
  PP_ASSERT(map.stages() == static_cast<int>(tensors_read.size()));
  StageParts out;
  std::vector<Range> own;
  for (const size_t tensor : tensors_read.at(static_cast<size_t>(stage))) {
    const TensorInfo& info = table.tensors[tensor];
    const Range elements{info.offset, info.offset + info.size};
    append(out.reads, elements);
    if (reader_before(tensors_read, stage, tensor) < 0) append(own, elements);
  }
  PP_ASSERT(own.size() == 1);  // see GroupModel
  out.own = own.front();
  out.owned = map.elements_of_stage(stage);
  out.returns = returned_by(table, map, tensors_read, stage);
  for (int behind = stage + 1; behind < map.stages(); ++behind) {
    for (StageParts::Returned& part : returned_by(table, map, tensors_read, behind)) {
      if (part.stage == stage) out.gathered.push_back({behind, std::move(part.ranges)});
    }
  }
  return out;
}

}  // namespace pushpull
