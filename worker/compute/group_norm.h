// The norm of a gradient whose elements belong to the stages of a group: each stage sends the squares of its
// blocks to all others, and adds those of all of them along the tree. So the norm has the bits of the
// undivided gradient, and all stages have the same one. Single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/layout/slice_map.h"
#include "common/update/norm.h"
#include "common/update/range_update.h"
#include "models/pipeline.h"
#include "worker/compute/stage_exchange.h"

namespace pushpull {

class GroupNorm {
 public:
  // whole: of the flat vector. Borrows all but the map.
  GroupNorm(const GroupStage& group, const SliceMap& map, const RangeUpdate& whole,
            StageExchange& exchange)
      : group_(group), map_(map), whole_(whole), exchange_(exchange) {}

  // Returns the sum of squares of the mean gradient. All stages call it with the same step and index, once in
  // an attempt. Throws as StageExchange::receive.
  //   sum: the flat vector, of which the stage's own elements are read. divisor: see UpdateInfo.
  double squares(int64_t step, int64_t index, const float* sum, double divisor);

  // Returns the floats of the largest part that a stage sends.
  static size_t largest_part(const SliceMap& map);

 private:
  std::vector<NormPart> parts_of(int stage) const;

  const GroupStage& group_;
  const SliceMap map_;
  const RangeUpdate& whole_;
  StageExchange& exchange_;
};

}  // namespace pushpull
