#include "worker/compute/group_norm.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

namespace pushpull {

namespace {

constexpr auto kSquares = wire::StagePart::KIND_SQUARES;

Range blocks_of(const SliceMap& map, int stage) {
  const Range elements = map.elements_of_stage(stage);
  if (elements.size() == 0) return {};
  return {elements.lo / kBlockElements, (elements.hi + kBlockElements - 1) / kBlockElements};
}

size_t floats_of(size_t parts) { return parts * sizeof(double) / sizeof(float); }

}  // namespace

size_t GroupNorm::largest_part(const SliceMap& map) {
  size_t parts = 0;
  for (int stage = 0; stage < map.stages(); ++stage) {
    parts = std::max(parts, maximal_subtrees(blocks_of(map, stage), map.blocks()).size());
  }
  return floats_of(parts);
}

// Returns the nodes that a stage sends, without their sums.
std::vector<NormPart> GroupNorm::parts_of(int stage) const {
  std::vector<NormPart> out;
  for (const Range& node : maximal_subtrees(blocks_of(map_, stage), map_.blocks())) {
    out.push_back({node});
  }
  return out;
}

double GroupNorm::squares(int64_t step, int64_t index, const float* sum, double divisor) {
  const Range own = blocks_of(map_, group_.stage());
  std::vector<double> blocks;
  for (int64_t block = own.lo; block < own.hi; ++block) {
    const Range elements{block * kBlockElements,
                         std::min((block + 1) * kBlockElements, map_.total())};
    blocks.push_back(whole_.squares(elements, sum + elements.lo, divisor));
  }
  std::vector<NormPart> all = norm_parts(blocks, own.lo, map_.blocks());
  const auto sent = std::make_shared<std::vector<double>>();
  for (const NormPart& part : all) sent->push_back(part.squares);
  for (int stage = 0; stage < group_.stages() && !sent->empty(); ++stage) {
    if (stage == group_.stage()) continue;
    exchange_.send({stage, kSquares, step, index}, {sent, std::as_bytes(std::span(*sent))});
  }
  for (int stage = 0; stage < group_.stages(); ++stage) {
    std::vector<NormPart> parts = parts_of(stage);
    if (stage == group_.stage() || parts.empty()) continue;
    const Payload received =
        exchange_.receive({stage, kSquares, step, index}, floats_of(parts.size()));
    for (size_t i = 0; i < parts.size(); ++i) {
      std::memcpy(&parts[i].squares, received.bytes.data() + i * sizeof(double), sizeof(double));
      all.push_back(parts[i]);
    }
  }
  return total_squares(std::move(all), map_.blocks());
}

}  // namespace pushpull
