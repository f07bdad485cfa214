#include "ps/server/encoded_weights.h"

#include <span>

#include "common/codec/block_codec.h"

namespace pushpull {

EncodedWeights::EncodedWeights(int64_t slice_elements)
    : pool_(static_cast<size_t>(slice_elements + 1) / 2) {}

Payload EncodedWeights::make(const Payload& weights) {
  const auto n = static_cast<int64_t>(weights.float_count());
  if (n == 1) return weights;  // would be no narrower, and workers tell by the size
  const std::shared_ptr<float[]> out = pool_.get();
  const int64_t floats = (n + 1) / 2;
  out[floats - 1] = 0.0F;  // half of it may be padding
  to_bf16(weights.floats(), n, reinterpret_cast<uint16_t*>(out.get()));
  return {out, std::as_bytes(std::span(out.get(), static_cast<size_t>(floats)))};
}

Payload EncodedWeights::get(int slice, int64_t version, const Payload& weights) {
  Newest& newest = newest_[slice];
  if (version < newest.version) return make(weights);  // for one that is behind
  if (version > newest.version) {
    newest.payload = {};  // back to the pool first
    newest = {version, make(weights)};
  }
  return newest.payload;
}

}  // namespace pushpull
