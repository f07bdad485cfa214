// Hash of the samples that a run actually drew, which shows that two runs saw the same data:
// SHA-256 of each micro-batch's place and indices, added up in any order. Thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/hash_sum.h"

namespace pushpull {

// Returns the hash of one micro-batch. indices: of its samples in the training split, in order.
HashSum data_hash(int64_t step, int64_t micro_batch, std::span<const int64_t> indices);

}  // namespace pushpull
