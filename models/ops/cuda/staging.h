// Copies unaligned tensors through scratch memory. Libraries expect tensors aligned to 16 bytes,
// but those of the flat vector are aligned to a float only. With the copies the same algorithm runs
// on all: a tensor's address changes no bit (P1). Used on the backend's thread.
#pragma once

#include <cstddef>

#include "models/ops/cuda/shared.h"
#include "models/ops/number.h"

namespace pushpull::ops::cuda {

inline constexpr size_t kAlignment = 16;  // bytes; what is_aligned checks

// Returns `bytes` rounded up to kAlignment.
size_t padded(size_t bytes);

// place_in_scratch returns an address in scratch memory. `stage_in` copies `from` there if it is
// not aligned, and returns the address of the aligned tensor.
//   place: bytes from the start of Shared::scratch.
void* place_in_scratch(const Shared& shared, size_t place);
const void* stage_in(Shared& shared, const void* from, size_t bytes, size_t place);
void copy(Shared& shared, const void* from, size_t bytes, void* to);

}  // namespace pushpull::ops::cuda
