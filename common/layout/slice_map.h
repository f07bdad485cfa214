// Cuts the flat parameter vector into slices and assigns each to a server. Slices end where stages of
// the model end, in whole blocks, so each belongs to one stage. Identical in every process. Plain
// data; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/layout/fixed_tree.h"
#include "common/layout/tensor_table.h"

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
  //   stage_begins: the first element of each stage but the first, ascending. A stage begins at the
  //   next whole block: the elements before it belong to the stage before.
  SliceMap(int64_t total, int64_t slice_bytes, int servers,
           const std::vector<int64_t>& stage_begins = {});
  SliceMap(const TensorTable& table, int64_t slice_bytes, int servers)
      : SliceMap(table.total, slice_bytes, servers, table.stage_begins()) {}

  int64_t total() const { return total_; }
  int slices() const { return slices_; }
  int servers() const { return servers_; }

  // Returns the elements of slice `slice`, at most slice_elements().
  Range elements(int slice) const;
  int64_t slice_elements() const { return std::min(slice_elements_, total_); }
  // Returns the slices that have elements of this range.
  Range slices_with(Range elements) const;
  // Return the blocks of slice `slice`, and the number of blocks in the whole vector.
  Range blocks(int slice) const;
  int64_t blocks() const { return (total_ + kBlockElements - 1) / kBlockElements; }

  // Slices are assigned round robin: every server has work throughout the backward pass, and the
  // servers' loads differ by at most one slice.
  int server_of(int slice) const { return slice % servers_; }
  std::vector<int> slices_of(int server) const;

  int stages() const { return static_cast<int>(stages_.size()); }
  int stage_of(int slice) const;
  // Return the slices of a stage, and their elements. Both may be empty.
  Range slices_of_stage(int stage) const;
  Range elements_of_stage(int stage) const;

 private:
  int64_t slice_with(int64_t element) const;

  struct Stage {
    int64_t begin = 0;  // element
    int first_slice = 0;
  };

  int64_t total_ = 0;
  int64_t slice_elements_ = kBlockElements;
  int slices_ = 0;
  std::vector<Stage> stages_{1};
  int servers_ = 1;
};

}  // namespace pushpull
