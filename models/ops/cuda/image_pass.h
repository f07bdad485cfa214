// Traverses an image tensor [N, C, H, W]: each block processes one chunk of one channel, round by
// round. The mapping of elements to threads depends on the shape only. An unaligned image, or one
// with planes that are not whole packs, needs more loads for the same elements.
#pragma once

#include <cstdint>

#include "models/ops/arithmetic.h"
#include "models/ops/ops.h"

namespace pushpull::ops::cuda {

struct ImagePass {
  int64_t channels = 0;
  int64_t area = 0;
  uint32_t places = 0;  // elements of a channel: over samples, then over the plane
  uint32_t chunk = 0;
  uint32_t chunks = 0;
  Divider by_area;
  Divider by_chunks;

  explicit ImagePass(const ImageShape& image)
      : channels(image.channels),
        area(image.height * image.width),
        places(static_cast<uint32_t>(image.samples * area)),
        chunk(static_cast<uint32_t>(plan_channel(places).chunk)),
        chunks(static_cast<uint32_t>(plan_channel(places).chunks)),
        by_area(area),
        by_chunks(chunks) {}

  int64_t blocks() const { return channels * chunks; }
  // Returns the elements per load: a pack, half a pack, or one, as the planes allow.
  template <class T>
  int vector(bool aligned) const {
    if (!aligned || area % (kPackSize<T> / 2) != 0) return 1;
    return area % kPackSize<T> == 0 ? kPackSize<T> : kPackSize<T> / 2;
  }

  struct Block {
    uint32_t channel;
    uint32_t chunk;
    uint32_t first;  // first place
    uint32_t last;   // one past the last place
  };
  PP_HOST_DEVICE Block block(uint32_t index) const {
    const uint32_t channel = by_chunks.quotient(index);
    const uint32_t of_channel = index - channel * chunks;
    const uint32_t first = of_channel * chunk;
    const uint32_t last = places - first < chunk ? places : first + chunk;
    return {channel, of_channel, first, last};
  }
  PP_HOST_DEVICE int64_t offset(uint32_t channel, uint32_t place) const {
    const uint32_t sample = by_area.quotient(place);
    const int64_t plane = static_cast<int64_t>(sample) * channels + channel;
    return plane * area + (place - sample * static_cast<uint32_t>(area));
  }
};

// Returns the place of a thread's i-th element in the round that starts at `first`.
template <class T>
PP_HOST_DEVICE uint32_t place_of(uint32_t first, uint32_t thread, int i) {
  const auto pack = static_cast<uint32_t>(i / kPackSize<T>) * kBlock + thread;
  return first + pack * kPackSize<T> + static_cast<uint32_t>(i % kPackSize<T>);
}

// Returns the number of places in the round that starts at `first`.
PP_HOST_DEVICE inline uint32_t round_count(uint32_t first, uint32_t last) {
  return last - first < kRound ? last - first : static_cast<uint32_t>(kRound);
}

// Loads a thread's elements of a round; 0 beyond the block's last place.
template <int kVector, class T>
PP_HOST_DEVICE void load_round(const T* x, const ImagePass& pass, const ImagePass::Block& block,
                               uint32_t first, uint32_t thread, float (&to)[kPerThread]) {
  PP_UNROLL
  for (int i = 0; i < kPerThread; i += kVector) {
    const uint32_t place = place_of<T>(first, thread, i);
    if (place < block.last) {
      load_vector<kVector>(x + pass.offset(block.channel, place), to + i);
    } else {
      PP_UNROLL
      for (int j = 0; j < kVector; ++j) to[i + j] = 0.0F;
    }
  }
}

template <int kVector, class T>
PP_HOST_DEVICE void store_round(const float (&from)[kPerThread], const ImagePass& pass,
                                const ImagePass::Block& block, uint32_t first, uint32_t thread,
                                T* y) {
  PP_UNROLL
  for (int i = 0; i < kPerThread; i += kVector) {
    const uint32_t place = place_of<T>(first, thread, i);
    if (place < block.last) {
      store_vector<kVector>(from + i, y + pass.offset(block.channel, place));
    }
  }
}

PP_HOST_DEVICE inline float sum_of(const float (&values)[kPerThread]) {
  float sum = 0.0F;
  PP_UNROLL
  for (int i = 0; i < kPerThread; ++i) sum += values[i];
  return sum;
}

}  // namespace pushpull::ops::cuda
