// Transposition in square tiles that pass through a block's shared memory, so that both sides are
// accessed along rows. Gives the location of each element of a tile. Pure.
#pragma once

#include <cstdint>

#include "common/base/host_device.h"

namespace pushpull::ops::cuda {

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

}  // namespace pushpull::ops::cuda
