// Page-aligned floats whose pages are there before the clock starts: vectors that straddle cache
// lines, and fresh pages, cost up to half of the bandwidth. One owner.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace pushpull::floors {

struct Free {
  void operator()(float* floats) const { std::free(floats); }
};
using Floats = std::unique_ptr<float[], Free>;

inline Floats touched(size_t bytes, float value) {
  constexpr size_t kPage = 4096;
  auto* memory =
      static_cast<float*>(std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage));
  if (memory == nullptr) throw std::bad_alloc();
  std::fill_n(memory, bytes / sizeof(float), value);
  return Floats(memory);
}

}  // namespace pushpull::floors
