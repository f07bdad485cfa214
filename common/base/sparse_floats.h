// Zeroed floats that take memory where they are written: a flat vector of the model in a worker that has
// a part of it. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>

namespace pushpull {

// Returns `floats` zeros. Throws NoFloats (buffer_pool.h) if the system has no such address range.
std::shared_ptr<float[]> sparse_floats(size_t floats);

}  // namespace pushpull
