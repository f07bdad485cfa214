// Own loops: oneDNN's layer_normalization needs aligned parameters, and the order of its sums
// depends on the number of threads. A row stays in the first cache between its passes.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/base/simd.h"
#include "models/ops/arithmetic.h"
#include "models/ops/cpu/operations.h"
#include "models/ops/cpu/split.h"
#include "models/ops/norms.h"

namespace pushpull::ops::cpu {

// Eight floats that are computed together. A sum over a row is partial sums in a fixed order,
// combined in a fixed tree, so it has the same bits with every instruction set. Wider lanes would
// be slow on AVX2, where g++ 12 splits them in memory. Use the functions inside a function with
// PUSHPULL_SIMD.
constexpr int64_t kLanes = 8;

using Lanes [[gnu::vector_size(32)]] = float;

PUSHPULL_INLINE void load(const float* from, Lanes& to) { std::memcpy(&to, from, sizeof(Lanes)); }
PUSHPULL_INLINE void store(const Lanes& from, float* to) { std::memcpy(to, &from, sizeof(Lanes)); }

// For the end of a row: the lanes from `count` on become 0, or are not written.
PUSHPULL_INLINE void load_some(const float* from, int64_t count, Lanes& to) {
  float all[kLanes] = {};
  for (int64_t k = 0; k < count; ++k) all[k] = from[k];
  load(all, to);
}
PUSHPULL_INLINE void store_some(const Lanes& from, int64_t count, float* to) {
  float all[kLanes];
  store(from, all);
  for (int64_t k = 0; k < count; ++k) to[k] = all[k];
}

// Returns the sum of the lanes, by tree_sum.
PUSHPULL_INLINE double total(const Lanes& lanes) {
  float all[kLanes];
  store(lanes, all);
  double sums[kLanes];
  for (int64_t k = 0; k < kLanes; ++k) sums[k] = static_cast<double>(all[k]);
  tree_sum(sums, kLanes);
  return sums[0];
}

namespace {

// The statistics of one row, kept for backward.
struct RowStatistics {
  float mean;
  float inverse;  // 1 / deviation
};

// Returns the sum of x - mean, or of its square. Eight sums hide the latency of an addition.
template <bool kSquare>
PUSHPULL_INLINE double sum_row(const float* x, int64_t width, float mean) {
  constexpr int64_t kSums = 8;
  Lanes sums[kSums] = {};
  Lanes value;
  int64_t j = 0;
  for (; j + kSums * kLanes <= width; j += kSums * kLanes) {
    for (int64_t s = 0; s < kSums; ++s) {
      load(x + j + s * kLanes, value);
      value -= mean;
      sums[s] += kSquare ? value * value : value;
    }
  }
  for (; j + kLanes <= width; j += kLanes) {
    load(x + j, value);
    value -= mean;
    sums[0] += kSquare ? value * value : value;
  }
  float rest[kLanes] = {};
  for (int64_t k = 0; j + k < width; ++k) {
    const float distance = x[j + k] - mean;
    rest[k] = kSquare ? distance * distance : distance;
  }
  load(rest, value);
  for (int64_t s = 1; s < kSums; ++s) sums[0] += sums[s];
  return total(sums[0] + value);
}

template <bool kCentred>
PUSHPULL_INLINE void normalise_row(const float* x, const float* scale, const float* shift,
                                   int64_t width, float epsilon, float* y, RowStatistics& row) {
  const auto count = static_cast<double>(width);
  row.mean = kCentred ? static_cast<float>(sum_row<false>(x, width, 0.0F) / count) : 0.0F;
  row.inverse = inverse_deviation(sum_row<true>(x, width, row.mean) / count, epsilon);
  const float mean = row.mean;
  const float inverse = row.inverse;
  PUSHPULL_ELEMENTWISE
  for (int64_t j = 0; j < width; ++j) {
    const float value = (x[j] - mean) * inverse * scale[j];
    y[j] = kCentred ? value + shift[j] : value;
  }
}

PUSHPULL_SIMD void normalise_centred(const float* x, const float* scale, const float* shift,
                                     int64_t rows, int64_t width, float epsilon, float* y,
                                     RowStatistics* kept) {
  for (int64_t n = 0; n < rows; ++n) {
    RowStatistics row;
    normalise_row<true>(x + n * width, scale, shift, width, epsilon, y + n * width, row);
    if (kept != nullptr) kept[n] = row;
  }
}

PUSHPULL_SIMD void normalise(const float* x, const float* scale, int64_t rows, int64_t width,
                             float epsilon, float* y, RowStatistics* kept) {
  for (int64_t n = 0; n < rows; ++n) {
    RowStatistics row;
    normalise_row<false>(x + n * width, scale, nullptr, width, epsilon, y + n * width, row);
    if (kept != nullptr) kept[n] = row;
  }
}

// Sums of g = dy * scale over a row, and of g h.
struct GradientSums {
  Lanes g = {};
  Lanes product = {};
};

// Adds the elements of a row's lanes to all four sums.
PUSHPULL_INLINE void add_lanes(const RowStatistics& row, const Lanes& x, const Lanes& dy,
                               const Lanes& scale, Lanes& dscale, Lanes& dshift,
                               GradientSums& sums) {
  const Lanes h = (x - row.mean) * row.inverse;
  const Lanes g = dy * scale;
  dscale += dy * h;
  dshift += dy;
  sums.g += g;
  sums.product += g * h;
}

// Adds a row to dscale and dshift; mean_g and mean_product become the means of g and g h.
PUSHPULL_INLINE void add_row(const float* x, const float* dy, const float* scale, int64_t width,
                             const RowStatistics& row, float* dscale, float* dshift, float& mean_g,
                             float& mean_product) {
  constexpr int64_t kSums = 2;
  GradientSums sums[kSums];
  Lanes a, b, c, d, e;
  int64_t j = 0;
  const auto add = [&](GradientSums & to) __attribute__((always_inline)) {
    load(x + j, a);
    load(dy + j, b);
    load(scale + j, c);
    load(dscale + j, d);
    load(dshift + j, e);
    add_lanes(row, a, b, c, d, e, to);
    store(d, dscale + j);
    store(e, dshift + j);
    j += kLanes;
  };
  while (j + kSums * kLanes <= width) {
    add(sums[0]);
    add(sums[1]);
  }
  if (j + kLanes <= width) add(sums[0]);
  const int64_t rest = width - j;
  load_some(x + j, rest, a);
  load_some(dy + j, rest, b);
  load_some(scale + j, rest, c);
  load_some(dscale + j, rest, d);
  load_some(dshift + j, rest, e);
  add_lanes(row, a, b, c, d, e, sums[1]);
  store_some(d, rest, dscale + j);
  store_some(e, rest, dshift + j);
  const auto count = static_cast<double>(width);
  mean_g = static_cast<float>(total(sums[0].g + sums[1].g) / count);
  mean_product = static_cast<float>(total(sums[0].product + sums[1].product) / count);
}

// Writes dx of some rows, unless it is null, and adds these rows to dscale and dshift.
PUSHPULL_SIMD void add_chunk(const float* x, const float* dy, const float* scale, int64_t rows,
                             int64_t width, bool centred, const RowStatistics* kept, float* dscale,
                             float* dshift, float* dx) {
  for (int64_t n = 0; n < rows; ++n) {
    const float* x_row = x + n * width;
    const float* dy_row = dy + n * width;
    const RowStatistics row = kept[n];
    float mean_g;
    float mean_product;
    add_row(x_row, dy_row, scale, width, row, dscale, dshift, mean_g, mean_product);
    if (dx == nullptr) continue;
    if (!centred) mean_g = 0.0F;
    float* dx_row = dx + n * width;
    PUSHPULL_ELEMENTWISE
    for (int64_t j = 0; j < width; ++j) {
      const float h = (x_row[j] - row.mean) * row.inverse;
      dx_row[j] = row.inverse * (dy_row[j] * scale[j] - mean_g - h * mean_product);
    }
  }
}

PUSHPULL_SIMD void add_partial(const float* from, int64_t n, float* to) {
  PUSHPULL_ELEMENTWISE
  for (int64_t j = 0; j < n; ++j) to[j] += from[j];
}

template <class T>
class CpuLayerNorm final : public Operation {
 public:
  CpuLayerNorm(Shared& shared, const LayerNormShape& shape)
      : shared_(shared),
        shape_(shape),
        chunks_(pieces(shape.rows, kChunk)),
        rows_(shared, 3, shape.width) {
    const auto partials = static_cast<size_t>(chunks_ * 2 * shape.width);
    if (shared.scratch.size() < partials) shared.scratch = allocate(partials);
  }

  Needs needs() const override {
    return {.inputs = 1,
            .kept_bytes = static_cast<size_t>(shape_.rows) * sizeof(RowStatistics),
            .gradient_in_place = true};
  }

  void forward(const Run& run) override {
    const int64_t width = shape_.width;
    in_ranges(shape_.rows, rows_of_grain(width), [&](int64_t begin, int64_t end) {
      for_each_piece(begin, end, [&](int64_t first, int64_t rows) {
        T* to = elements<T>(run.y) + first * width;
        const float* x = read(elements<T>(run.x[0]) + first * width, width, rows_.row(0));
        float* y = written(to, rows_.row(1));
        RowStatistics* kept = run.training ? statistics(run) + first : nullptr;
        if (shape_.centred) {
          normalise_centred(x, run.w[0], run.w[1], rows, width, shape_.epsilon, y, kept);
        } else {
          normalise(x, run.w[0], rows, width, shape_.epsilon, y, kept);
        }
        finish(y, width, to);
      });
    });
  }

  void backward_weights(const Run& /*run*/) override {}

  void backward_data(const Run& run) override {
    in_ranges(chunks_, pieces(rows_of_grain(shape_.width), kChunk),
              [&](int64_t begin, int64_t end) {
                for (int64_t chunk = begin; chunk < end; ++chunk) backward_chunk(run, chunk);
              });
    in_ranges(shape_.width, pieces(kGrain, chunks_), [&](int64_t begin, int64_t end) {
      sum_partials(partials(0), begin, end, run.dw[0]);
      if (shape_.centred) sum_partials(partials(0) + shape_.width, begin, end, run.dw[1]);
    });
  }

 private:
  static constexpr int64_t kChunk = 64;  // rows

  static RowStatistics* statistics(const Run& run) { return static_cast<RowStatistics*>(run.kept); }

  // dscale and dshift of a chunk.
  float* partials(int64_t chunk) const { return shared_.scratch.data() + chunk * 2 * shape_.width; }

  void backward_chunk(const Run& run, int64_t chunk) const {
    const int64_t width = shape_.width;
    const int64_t first = chunk * kChunk;
    const int64_t rows = std::min(kChunk, shape_.rows - first);
    float* dscale = partials(chunk);
    std::fill_n(dscale, 2 * width, 0.0F);
    for_each_piece(first, first + rows, [&](int64_t n, int64_t count) {
      const float* x = read(elements<T>(run.x[0]) + n * width, width, rows_.row(0));
      const float* dy = read(elements<T>(run.dy) + n * width, width, rows_.row(1));
      T* to = run.dx[0].data == nullptr ? nullptr : elements<T>(run.dx[0]) + n * width;
      float* dx = to == nullptr ? nullptr : written(to, rows_.row(2));
      add_chunk(x, dy, run.w[0], count, width, shape_.centred, statistics(run) + n, dscale,
                dscale + width, dx);
      if (to != nullptr) finish(dx, width, to);
    });
  }

  // Calls body(first row, rows) on all rows for floats, and on each row for bf16.
  template <class Body>
  static void for_each_piece(int64_t begin, int64_t end, const Body& body) {
    const int64_t step = std::is_same_v<T, float> ? end - begin : 1;
    for (int64_t row = begin; row < end; row += step) body(row, std::min(step, end - row));
  }

  void sum_partials(const float* partial, int64_t begin, int64_t end, float* sum) const {
    std::copy(partial + begin, partial + end, sum + begin);
    for (int64_t chunk = 1; chunk < chunks_; ++chunk) {
      add_partial(partial + chunk * 2 * shape_.width + begin, end - begin, sum + begin);
    }
  }

  Shared& shared_;
  LayerNormShape shape_;
  int64_t chunks_;
  RowBuffers<T> rows_;
};

}  // namespace

std::unique_ptr<Operation> make_layer_norm(Shared& shared, const Spec& spec) {
  return by_element(shared.activation, [&]<class T>(T) -> std::unique_ptr<Operation> {
    return std::make_unique<CpuLayerNorm<T>>(shared, spec_as<LayerNormSpec>(spec).shape());
  });
}

}  // namespace pushpull::ops::cpu
