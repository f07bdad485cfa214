// Images with labels, read from a dataset, for tests.
#pragma once

#include <cstdint>
#include <vector>

#include "datasets/dataset.h"

namespace pushpull {

struct Images {
  std::vector<float> images;
  std::vector<int32_t> labels;
};

inline const std::vector<int64_t>& shape_of(const Dataset& data) {
  return data.fields().fields.at(0).shape;
}
inline int64_t pixels_of(const Dataset& data) { return data.fields().fields.at(0).size(); }
inline int64_t classes_of(const Dataset& data) { return data.fields().fields.at(1).limit; }

inline Images read_images(const Dataset& data, Split split, const std::vector<int64_t>& indices) {
  const BatchLayout layout(data.fields(), std::ssize(indices));
  std::vector<float> block(layout.words());
  data.read({split, 0, indices, layout}, block.data());
  const float* images = block.data() + layout.offset(0);
  const int32_t* labels = as_ints(block.data() + layout.offset(1));
  return {{images, images + layout.size(0)}, {labels, labels + layout.size(1)}};
}

}  // namespace pushpull
