// Vectors of floats allocated as servers allocate them (common/base/buffer_pool.h). All pages are
// touched before the measurement starts: page faults cost up to half of the bandwidth.
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
