// Encodes what a worker pushes, and remembers what that has cost: error feedback. With gradient g
// and residual e the worker sends encode(g + e), and keeps e = g + e - decode(sent) for its next
// push of the same place: later pushes bring what one push has lost. One thread (the
// trainer's).
//
// Sources: Seide et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014; Karimireddy et al.,
// Error Feedback Fixes SignSGD and other Gradient Compression Schemes, ICML 2019.
//
// A place is a node of the share's sum; leases of async all have one. Residuals begin at zero and
// end with the process: whoever takes a share over begins anew.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/codec/codec_map.h"
#include "common/job/job.h"
#include "common/net/message.h"

namespace pushpull {

class Encoder {
 public:
  // Borrows `table`: an error names the tensor whose residual is not finite.
  Encoder(const Job& job, const TensorTable& table, const SliceMap& map);

  // Encodes `part` for the wire, the sum of gradients over the micro-batches `node`, given as
  // plain floats. A slice without a codec is passed on as it is. Throws Error(kNotFinite).
  Payload encode(Range node, int slice, Payload part);

  // The flat vector as the servers decode it, of the last part of each slice; empty where nothing
  // is encoded.
  std::span<const float> sent() const { return sent_; }

 private:
  void encode_part(int slice, const float* gradient, float* residual, std::byte* out);
  [[noreturn]] void refuse(int64_t element) const;

  const bool one_place_;
  const bool keeps_sent_;
  const TensorTable& table_;
  const SliceMap map_;
  std::vector<SliceCodec> codecs_;                // by slice
  BufferPool pool_;                               // of encoded slices
  std::map<Range, std::vector<float>> residual_;  // by place: the flat vector
  std::vector<float> sent_;
};

}  // namespace pushpull
