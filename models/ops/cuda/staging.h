// Tensors that libraries are handed are aligned to 16 bytes; those of the flat vector are aligned
// to a float. What is not takes the way over scratch memory, so that the same algorithm runs on it:
// where a tensor lies changes no bit (P1).
#pragma once

#include <cstddef>

#include "models/ops/cuda/shared.h"
#include "models/ops/number.h"

namespace pushpull::ops::cuda {

inline constexpr size_t kAlignment = 16;  // bytes, as is_aligned asks

// Room in scratch that keeps what follows aligned.
size_t padded(size_t bytes);

// `place`: bytes from the beginning of Shared::scratch. A copy is enqueued where it is needed.
void* place_in_scratch(const Shared& shared, size_t place);
const void* stage_in(Shared& shared, const void* from, size_t bytes, size_t place);
void copy(Shared& shared, const void* from, size_t bytes, void* to);

}  // namespace pushpull::ops::cuda
