// Which elements of the flat vector a worker of a group needs for its stage. Pure functions; any thread.
//
// A tensor *belongs* to the first stage that reads it. A stage *owns* the elements of its slices, which
// are whole blocks: the first elements of its first tensors may lie in a block of a stage before, which
// owns them. The gradient of an element is summed by its owner. So a stage *returns* gradients of
// elements that it does not own, for each micro-batch:
//   - of a tensor that a stage before reads, too (tied weights), to the last of those stages, which
//     adds its own gradient: from the last reader to the first, in the order of the undivided model
//   - of elements of its own tensors, to their owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/layout/slice_map.h"
#include "common/layout/tensor_table.h"

namespace pushpull {

struct StageParts {
  // Gradients that pass from one stage to another, in one message.
  struct Returned {
    int stage = 0;              // that they come from or go to
    std::vector<Range> ranges;  // of elements, ascending
    size_t floats() const;
    friend bool operator==(const Returned&, const Returned&) = default;
  };
  Range own;                       // elements of the tensors that belong to the stage
  Range owned;                     // elements whose gradients it sums
  std::vector<Range> reads;        // elements whose weights it reads
  std::vector<Returned> returns;   // to stages before, ascending
  std::vector<Returned> gathered;  // from stages behind, ascending
};

// Returns the parts of a stage.
//   map: with the stages of the table. tensors_read: of GroupStage.
StageParts stage_parts(const TensorTable& table, const SliceMap& map,
                       const std::vector<std::vector<size_t>>& tensors_read, int stage);

}  // namespace pushpull
