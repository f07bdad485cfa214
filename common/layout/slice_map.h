// Cuts the flat parameter vector into slices and assigns each to a server. Identical in every
// process. Plain data; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/layout/fixed_tree.h"

namespace pushpull {

// Norms are summed over blocks of this many elements; a slice is a whole number of blocks.
constexpr int64_t kBlockElements = 1024;

class SliceMap {
 public:
  SliceMap() = default;

  // total: elements of the flat vector.
  // slice_bytes: maximum size of a slice, rounded up to whole blocks. Slices are smaller if a
  // server would otherwise own none (a model with fewer blocks than servers leaves some servers
  // empty).
  SliceMap(int64_t total, int64_t slice_bytes, int servers);

  int64_t total() const { return total_; }
  int slices() const { return slices_; }
  int servers() const { return servers_; }

  // Returns the elements of slice `slice`.
  Range elements(int slice) const;
  // Return the blocks of slice `slice`, and the number of blocks in the whole vector.
  Range blocks(int slice) const;
  int64_t blocks() const { return (total_ + kBlockElements - 1) / kBlockElements; }

  // Slices are assigned round robin: every server has work throughout the backward pass, and the
  // servers' loads differ by at most one slice.
  int server_of(int slice) const { return slice % servers_; }
  std::vector<int> slices_of(int server) const;

 private:
  int64_t total_ = 0;
  int64_t slice_elements_ = kBlockElements;
  int slices_ = 0;
  int servers_ = 1;
};

}  // namespace pushpull
