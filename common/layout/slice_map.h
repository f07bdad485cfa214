// How the flat parameter vector is cut into slices, and which server owns which. The same answer in
// every process; plain data, any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/layout/fixed_tree.h"

namespace pushpull {

// Norms are summed over blocks of this many elements; slices are whole blocks.
constexpr int64_t kBlockElements = 1024;

class SliceMap {
 public:
  SliceMap() = default;

  // total: elements of the flat vector. slice_bytes: at most, rounded up to whole blocks; made
  // smaller where some server would hold no slice otherwise (a model of fewer blocks than servers
  // leaves some empty).
  SliceMap(int64_t total, int64_t slice_bytes, int servers);

  int64_t total() const { return total_; }
  int slices() const { return slices_; }
  int servers() const { return servers_; }

  // Elements of slice `slice`.
  Range elements(int slice) const;
  // Blocks of slice `slice`, and of the whole vector.
  Range blocks(int slice) const;
  int64_t blocks() const { return (total_ + kBlockElements - 1) / kBlockElements; }

  // Slices go round robin, so that backward's order keeps every server busy; bytes differ by one
  // slice.
  int server_of(int slice) const { return slice % servers_; }
  std::vector<int> slices_of(int server) const;

 private:
  int64_t total_ = 0;
  int64_t slice_elements_ = kBlockElements;
  int slices_ = 0;
  int servers_ = 1;
};

}  // namespace pushpull
