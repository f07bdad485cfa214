// Vectors of floats as servers have them (common/base/buffer_pool.h), with every page there before
// the clock starts: fresh pages cost up to half of the bandwidth.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

#include "common/base/buffer_pool.h"

namespace pushpull::floors {

using Floats = std::shared_ptr<float[]>;

inline Floats touched(size_t bytes, float value) {
  Floats floats = heap_floats((bytes + sizeof(float) - 1) / sizeof(float));
  std::fill_n(floats.get(), bytes / sizeof(float), value);
  return floats;
}

}  // namespace pushpull::floors
