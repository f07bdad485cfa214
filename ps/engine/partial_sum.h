// A part of a slice's gradient, as servers hold it until its sum is complete. Plain data.
#pragma once

#include "common/layout/fixed_tree.h"
#include "common/net/message.h"

namespace pushpull {

// The sum of the gradients of micro-batches `range` over one slice, encoded by the slice's codec.
struct PartialSum {
  Range range;
  Payload payload;
  bool kept = false;  // see SliceEngine::keep
};

}  // namespace pushpull
