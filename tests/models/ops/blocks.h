// Images between C order and the blocks of channels that the CPU backend uses.
#pragma once

#include <cstdint>
#include <vector>

#include "models/ops/ops.h"

namespace pushpull::test {

inline int64_t block_size() {
  const auto backend = ops::make_cpu_backend(1);
  return static_cast<int64_t>(backend->image_floats({1, 1, 1, 1}, ops::Layout::kNative));
}

// Calls f(place in C order, place in blocks) for each element.
template <class F>
void for_each_place(const ops::ImageShape& image, F f) {
  const int64_t block = block_size();
  const int64_t blocks = (image.channels + block - 1) / block;
  const int64_t area = image.height * image.width;
  for (int64_t n = 0; n < image.samples; ++n) {
    for (int64_t c = 0; c < image.channels; ++c) {
      for (int64_t i = 0; i < area; ++i) {
        f(static_cast<size_t>((n * image.channels + c) * area + i),
          static_cast<size_t>(((n * blocks + c / block) * area + i) * block + c % block));
      }
    }
  }
}

// Returns the image in blocks, with zeros behind the last channel.
inline std::vector<float> in_blocks(const ops::ImageShape& image, const std::vector<float>& x) {
  const auto backend = ops::make_cpu_backend(1);
  std::vector<float> out(backend->image_floats(image, ops::Layout::kNative));
  for_each_place(image, [&](size_t from, size_t to) { out[to] = x.at(from); });
  return out;
}

inline std::vector<float> from_blocks(const ops::ImageShape& image, const std::vector<float>& x) {
  std::vector<float> out(static_cast<size_t>(image.size()));
  for_each_place(image, [&](size_t to, size_t from) { out[to] = x.at(from); });
  return out;
}

}  // namespace pushpull::test
