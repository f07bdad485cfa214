// The hash of the samples that were really drawn, to show that two runs saw the same data: SHA-256
// of each micro-batch's place and indices, added up in any order. Any thread.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/hash_sum.h"

namespace pushpull {

// The hash of one micro-batch. indices: of its samples in the training split, in their order.
HashSum data_hash(int64_t step, int64_t micro_batch, std::span<const int64_t> indices);

}  // namespace pushpull
