// Attention on CUDA: products by cuBLASLt and own kernels between them. The scores of a group of
// heads and a block of queries lie in scratch memory at a time, so memory is linear in the
// positions. Used on the backend's thread.
#pragma once

#include <cstdint>
#include <memory>

#include "models/ops/attention.h"
#include "models/ops/cuda/shared.h"

namespace pushpull::ops::cuda {

// Blocks and groups depend on these and the shape alone, so equal shapes give equal bits.
struct AttentionLimits {
  int64_t rows = 256;   // queries of a block, a multiple of eight
  int64_t extents = 4;  // different numbers of keys of causal blocks; each has its plans
  int64_t scores = int64_t{16} << 20;  // of a block, unless one head has more
};

std::unique_ptr<Operation> make_attention_within(Shared& shared, const AttentionShape& shape,
                                                 const AttentionLimits& limits);

}  // namespace pushpull::ops::cuda
