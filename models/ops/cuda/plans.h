// The requests of the CUDA backend to libraries and kernels as plain arithmetic, which is tested
// without a GPU: products of matrices, unrolled images, transposes.
//
// Expresses a product of row-major matrices for a column-major library: a row-major matrix is its
// transpose in column-major order, so the library computes Dᵀ = op(B)ᵀ op(A)ᵀ, and its first factor
// is our second. Source: the cuBLAS documentation, "Data layout". Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "common/base/host_device.h"
#include "models/ops/convolution.h"

namespace pushpull::ops::cuda {

// Transposition in square tiles that pass through a block's shared memory, so that both sides are
// accessed along rows. Gives the location of each element of a tile. Pure.
//
// to [batch][columns][rows] = from [batch][rows][columns]
struct TransposePlan {
  static constexpr int kTile = 32;

  int64_t batch = 0;
  int64_t rows = 0;
  int64_t columns = 0;

  // The first element of a tile.
  struct Tile {
    int64_t offset = 0;  // of its matrix's first element
    int64_t row = 0;
    int64_t column = 0;
  };

  PP_HOST_DEVICE int64_t across() const { return (columns + kTile - 1) / kTile; }
  PP_HOST_DEVICE int64_t down() const { return (rows + kTile - 1) / kTile; }
  PP_HOST_DEVICE int64_t tiles() const { return batch * across() * down(); }

  PP_HOST_DEVICE Tile tile(int64_t index) const {
    const int64_t matrix = index / (across() * down());
    return {matrix * rows * columns, index / across() % down() * kTile, index % across() * kTile};
  }
  // Returns the index of element (i, j) of a tile in `from` or in `to`, or -1 beyond the edge of
  // the matrix.
  PP_HOST_DEVICE int64_t source(const Tile& tile, int64_t i, int64_t j) const {
    return inside(tile, i, j) ? tile.offset + (tile.row + i) * columns + tile.column + j : -1;
  }
  PP_HOST_DEVICE int64_t target(const Tile& tile, int64_t i, int64_t j) const {
    return inside(tile, i, j) ? tile.offset + (tile.column + j) * rows + tile.row + i : -1;
  }

 private:
  PP_HOST_DEVICE bool inside(const Tile& tile, int64_t i, int64_t j) const {
    return tile.row + i < rows && tile.column + j < columns;
  }
};

// Convolution as the matrix products of a linear layer: each output position is a sample with the
// C*k*k elements under the kernel as inputs. Gives the location of each element, for kernels and
// their tests. Source: Chellapilla, Puri & Simard, 2006 ("unrolling convolution").
//
// A *row* is an output position (sample, height, width); a *column* is an element of the kernel
// (channel, i, j), in the order of w [O, C, k, k]. The matrix of rows and columns is called
// "columns". Pure.

// Sizes of one convolution, in 32 bits: no tensor has more than 2^31 elements (Spec::check).
// Products of two sizes use 64 bits.
struct Im2col {
  int32_t channels = 0;
  int32_t height = 0;
  int32_t width = 0;
  int32_t kernel = 0;
  int32_t padding = 0;
  int32_t stride = 1;
  int32_t out_height = 0;
  int32_t out_width = 0;

  PP_HOST_DEVICE int64_t columns() const { return int64_t{channels} * kernel * kernel; }
  PP_HOST_DEVICE int64_t positions() const { return int64_t{out_height} * out_width; }

  // Returns the index in x of element (row, column), or -1 for padding.
  PP_HOST_DEVICE int64_t source(int64_t row, int64_t column) const {
    const int64_t sample = row / positions();
    const auto at = static_cast<int32_t>(row % positions());
    const int32_t taps = kernel * kernel;
    const auto tap = static_cast<int32_t>(column % taps);
    const int64_t channel = column / taps;
    const int32_t h = at / out_width * stride + tap / kernel - padding;
    const int32_t w = at % out_width * stride + tap % kernel - padding;
    if (h < 0 || h >= height || w < 0 || w >= width) return -1;
    return ((sample * channels + channel) * height + h) * width + w;
  }

  // Returns the sum, in the order of (i, j), of all elements that were taken from x[index].
  //   columns_of: [rows, columns()].
  //   read: converts an element.
  template <class Read>
  PP_HOST_DEVICE float gather(int64_t index, Read read) const {
    const auto w = static_cast<int32_t>(index % width);
    const auto h = static_cast<int32_t>(index / width % height);
    const int64_t channel = index / (int64_t{width} * height) % channels;
    const int64_t sample = index / (int64_t{width} * height * channels);
    float sum = 0.0F;
    for (int32_t i = 0; i < kernel; ++i) {
      const int32_t y = output(h + padding - i);
      if (y < 0 || y >= out_height) continue;
      for (int32_t j = 0; j < kernel; ++j) {
        const int32_t x = output(w + padding - j);
        if (x < 0 || x >= out_width) continue;
        const int64_t row = sample * positions() + int64_t{y} * out_width + x;
        sum += read(row * columns() + (channel * kernel + i) * kernel + j);
      }
    }
    return sum;
  }

 private:
  // Returns the output position that has its kernel's start at `first` (with the padding), or -1.
  PP_HOST_DEVICE int32_t output(int32_t first) const {
    return first < 0 || first % stride != 0 ? -1 : first / stride;
  }
};

inline Im2col plan_im2col(const ConvolutionShape& shape) {
  const auto int32 = [](int64_t size) { return static_cast<int32_t>(size); };
  const ImageShape out = shape.output();
  return {int32(shape.input.channels), int32(shape.input.height), int32(shape.input.width),
          int32(shape.kernel),         int32(shape.padding),      int32(shape.stride),
          int32(out.height),           int32(out.width)};
}

// Returns the number of samples to unroll at a time, at least one, so that their columns take at
// most `bytes`. Depends on the shape only: splitting the sum over rows elsewhere would change bits.
inline int64_t samples_at_a_time(const Im2col& plan, int64_t samples, int64_t element_bytes,
                                 int64_t bytes) {
  const int64_t each = plan.positions() * plan.columns() * element_bytes;
  return std::clamp(bytes / each, int64_t{1}, samples);
}

// D [m, n] = op(A) [m, k] op(B) [k, n], all row-major and packed.
struct Product {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;  // A is stored as [k, m]
  bool transpose_b = false;  // B is stored as [n, k]

  int64_t a_elements() const { return m * k; }
  int64_t b_elements() const { return n * k; }
  int64_t d_elements() const { return m * n; }

  // Returns "512x4096x4096nt": m, n, k, and whether A and B are transposed (t) or not (n).
  std::string name() const {
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) +
           (transpose_a ? "t" : "n") + (transpose_b ? "t" : "n");
  }
};

// Products of one shape at equal distances from each other, in elements of their operands.
struct Batch {
  int64_t count = 1;
  int64_t a = 0;  // from one A to the next
  int64_t b = 0;
  int64_t d = 0;

  // Returns "" for one product, or "/48:16384,16384,65536": the count, then the distances.
  std::string name() const {
    if (count == 1) return {};
    return "/" + std::to_string(count) + ":" + std::to_string(a) + "," + std::to_string(b) + "," +
           std::to_string(d);
  }
  // Returns the elements from the first operand to the end of the last.
  //   elements: of one operand, distance: from it to the next.
  int64_t spanned(int64_t elements, int64_t distance) const {
    return (count - 1) * distance + elements;
  }
};

// A matrix as described to the library: `rows` x `columns` as stored, with a column every `stride`
// elements.
struct ColumnMajor {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;
  bool transpose = false;
};

struct MatmulPlan {
  ColumnMajor first;   // our B
  ColumnMajor second;  // our A
  ColumnMajor result;  // D
};

inline MatmulPlan plan_matmul(const Product& p) {
  // row-major [rows, columns] is column-major [columns, rows]
  const auto column_major = [](int64_t rows, int64_t columns, bool transpose) {
    return ColumnMajor{columns, rows, columns, transpose};
  };
  return {p.transpose_b ? column_major(p.n, p.k, true) : column_major(p.k, p.n, false),
          p.transpose_a ? column_major(p.k, p.m, true) : column_major(p.m, p.k, false),
          column_major(p.m, p.n, false)};
}

// The three products of a layer y [samples, outputs] = x [samples, inputs] wᵀ, w [outputs, inputs].
// If `transposed`, the layer stores wᵀ [inputs, outputs] and its gradient.
struct LayerProducts {
  Product forward;  // y = x wᵀ
  Product weights;  // dw = dyᵀ x, or xᵀ dy if `transposed`
  Product data;     // dx = dy w
};

inline LayerProducts layer_products(int64_t samples, int64_t inputs, int64_t outputs,
                                    bool transposed = false) {
  if (transposed) {
    return {{samples, outputs, inputs, false, false},
            {inputs, outputs, samples, true, false},
            {samples, inputs, outputs, false, true}};
  }
  return {{samples, outputs, inputs, false, true},
          {outputs, inputs, samples, true, false},
          {samples, inputs, outputs, false, false}};
}

}  // namespace pushpull::ops::cuda
