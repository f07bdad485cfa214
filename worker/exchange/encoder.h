// Encodes pushes with the job's codec and keeps the error for later pushes (error feedback). With
// gradient g and residual e, the worker sends encode(g + e) and keeps e = g + e - decode(sent) for
// the next push of the same place. Not thread-safe; used by the trainer's thread.
//
// Sources: Seide et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014; Karimireddy et al.,
// Error Feedback Fixes SignSGD and other Gradient Compression Schemes, ICML 2019.
//
// A place is a node of the share's sum; all leases of async have the same place. Residuals begin at
// zero and end with the process: a worker that takes over a share begins with zero.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/layout/slice_map.h"
#include "common/net/message.h"
#include "common/update/codec.h"

namespace pushpull {

struct Job;
struct TensorTable;

class Encoder {
 public:
  // Borrows `table`: an error names the tensor of a residual that is not finite.
  Encoder(const Job& job, const TensorTable& table, const SliceMap& map);

  // Encodes `part` for the wire: the sum of gradients over the micro-batches `node`, as plain
  // floats. Returns a slice without a codec as it is. Throws Error(kNotFinite).
  Payload encode(Range node, int slice, Payload part) {
    return plain_ ? std::move(part) : encode_slice(node, slice, std::move(part));
  }

  // The flat vector as the servers decode it, from the last part of each slice; empty if the job
  // has no codec.
  std::span<const float> sent() const {
    return {sent_.get(), sent_ ? static_cast<size_t>(map_.total()) : 0};
  }

 private:
  Payload encode_slice(Range node, int slice, Payload part);
  void encode_part(int slice, const float* gradient, float* residual, std::byte* out);
  [[noreturn]] void refuse(int64_t element) const;

  const bool one_place_;
  const bool keeps_sent_;
  const TensorTable& table_;
  const SliceMap map_;
  std::vector<SliceCodec> codecs_;  // by slice
  const bool plain_;                // no slice has a codec
  BufferPool pool_;                 // of encoded slices
  // Flat vectors. Their pages are touched where this worker pushes.
  std::map<Range, std::shared_ptr<float[]>> residual_;  // by place
  std::shared_ptr<float[]> sent_;                       // null before the first part
};

}  // namespace pushpull
