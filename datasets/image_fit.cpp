#include "datasets/image_fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "common/base/error.h"

namespace pushpull {
namespace {

ByteImage with_channels(const ByteImage& image, int64_t channels) {
  if (image.channels == channels) return image;
  ByteImage out{image.height, image.width, channels, {}};
  const auto count = static_cast<size_t>(image.height * image.width);
  out.pixels.resize(count * static_cast<size_t>(channels));
  for (size_t i = 0; i < count; ++i) {
    if (channels == 3) {
      std::fill_n(out.pixels.begin() + static_cast<std::ptrdiff_t>(3 * i), 3, image.pixels[i]);
      continue;
    }
    const uint8_t* colour = image.pixels.data() + 3 * i;
    out.pixels[i] = static_cast<uint8_t>(
        (19595U * colour[0] + 38470U * colour[1] + 7471U * colour[2] + 0x8000U) >> 16U);
  }
  return out;
}

// Source: Pillow, libImaging/Resample.c. A weight is a number of kUnit-ths.
constexpr int kBits = 32 - 8 - 2;
constexpr double kUnit = 1 << kBits;

// The part of a length that is kept.
struct Cut {
  int64_t whole = 0;  // after resizing
  int64_t begin = 0;
  int64_t count = 0;
};

// As Python's round((whole - count) / 2).
Cut middle_of(int64_t whole, int64_t count) {
  const int64_t rest = whole - count;
  const int64_t half = rest / 2;
  return {whole, rest % 2 == 0 ? half : half + half % 2, count};
}

// One pixel of the result: the pixels of the image that it is made of, and their weights.
struct Tap {
  int64_t first = 0;
  std::vector<int32_t> weights;
};

// Returns the taps of the pixels that are kept of a length that is resized from `from`.
std::vector<Tap> taps_of(int64_t from, const Cut& cut) {
  const double scale = static_cast<double>(from) / static_cast<double>(cut.whole);
  const double support = std::max(scale, 1.0);  // of the triangle
  std::vector<Tap> taps(static_cast<size_t>(cut.count));
  std::vector<double> weights;
  for (int64_t i = 0; i < cut.count; ++i) {
    const double center = (static_cast<double>(cut.begin + i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(center - support + 0.5));
    const auto end = std::min<int64_t>(from, static_cast<int64_t>(center + support + 0.5));
    weights.clear();
    double sum = 0.0;
    for (int64_t x = first; x < end; ++x) {
      const double away = std::abs((static_cast<double>(x) - center + 0.5) * (1.0 / support));
      weights.push_back(away < 1.0 ? 1.0 - away : 0.0);
      sum += weights.back();
    }
    Tap& tap = taps[static_cast<size_t>(i)];
    tap.first = first;
    for (const double weight : weights) {
      const double part = sum != 0.0 ? weight / sum : weight;
      tap.weights.push_back(static_cast<int32_t>(0.5 + part * kUnit));
    }
  }
  return taps;
}

// Returns the pixel that a tap makes of the bytes at `from`, which are `stride` apart.
uint8_t weigh(const Tap& tap, const uint8_t* from, int64_t stride) {
  int32_t sum = 1 << (kBits - 1);
  for (const int32_t weight : tap.weights) {
    sum += int32_t{*from} * weight;
    from += stride;
  }
  return static_cast<uint8_t>(std::clamp(sum >> kBits, 0, 255));
}

// Resizes the rows from `first` to `end`, which are kept.
ByteImage resize_rows(const ByteImage& image, const Cut& columns, int64_t first, int64_t end) {
  const int64_t channels = image.channels;
  ByteImage out{end - first, columns.count, channels, {}};
  out.pixels.reserve(static_cast<size_t>(out.height * out.width * channels));
  const std::vector<Tap> taps = taps_of(image.width, columns);
  for (int64_t y = first; y < end; ++y) {
    const uint8_t* row = image.pixels.data() + y * image.width * channels;
    for (const Tap& tap : taps) {
      for (int64_t c = 0; c < channels; ++c) {
        out.pixels.push_back(weigh(tap, row + tap.first * channels + c, channels));
      }
    }
  }
  return out;
}

}  // namespace

std::vector<uint8_t> fit_image(const ByteImage& given, const InputShape& shape) {
  PP_ASSERT(shape.channels == 1 || shape.channels == 3);
  PP_ASSERT(given.height > 0 && given.width > 0);
  const ByteImage image = with_channels(given, shape.channels);
  const bool by_width = shape.width * image.height >= shape.height * image.width;
  const Cut columns =
      middle_of(by_width ? shape.width : shape.height * image.width / image.height, shape.width);
  const Cut rows =
      middle_of(by_width ? shape.width * image.height / image.width : shape.height, shape.height);
  const std::vector<Tap> taps = taps_of(image.height, rows);
  const int64_t first = taps.front().first;
  const int64_t end = taps.back().first + std::ssize(taps.back().weights);
  const ByteImage narrow = resize_rows(image, columns, first, end);
  const int64_t row_bytes = narrow.width * narrow.channels;
  std::vector<uint8_t> out;
  out.reserve(static_cast<size_t>(shape.size()));
  for (int64_t c = 0; c < shape.channels; ++c) {
    for (const Tap& tap : taps) {
      const uint8_t* row = narrow.pixels.data() + (tap.first - first) * row_bytes + c;
      for (int64_t x = 0; x < shape.width; ++x) {
        out.push_back(weigh(tap, row + x * shape.channels, row_bytes));
      }
    }
  }
  return out;
}

}  // namespace pushpull
