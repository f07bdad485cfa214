// Weights as `pull-codec = bf16` hands them out. A slice of a version is made narrow once, when the
// first worker is answered with it. One thread.
#pragma once

#include <cstdint>
#include <map>

#include "common/base/buffer_pool.h"
#include "common/net/message.h"

namespace pushpull {

class EncodedWeights {
 public:
  // slice_elements: of the largest slice.
  explicit EncodedWeights(int64_t slice_elements);

  // weights: the slice's, in this version.
  Payload get(int slice, int64_t version, const Payload& weights);

 private:
  struct Newest {
    int64_t version = -1;
    Payload payload;
  };
  Payload make(const Payload& weights);

  BufferPool pool_;
  std::map<int, Newest> newest_;  // by slice
};

}  // namespace pushpull
