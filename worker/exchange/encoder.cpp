#include "worker/exchange/encoder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/base/simd.h"
#include "common/base/sparse_floats.h"
#include "common/job/job.h"
#include "common/layout/tensor_table.h"
#include "common/update/block_codec.h"

namespace pushpull {

namespace {

// out = gradient + residual. Returns true if all of it is finite.
PUSHPULL_SIMD bool add(const float* gradient, const float* residual, int64_t n, float* out) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) out[i] = gradient[i] + residual[i];
  int32_t most = 0;
  for (int64_t i = 0; i < n; ++i) {
    most = std::max(most, std::bit_cast<int32_t>(out[i]) & 0x7fffffff);
  }
  return most < 0x7f800000;
}

PUSHPULL_SIMD void subtract(const float* wanted, const float* sent, int64_t n, float* out) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) out[i] = wanted[i] - sent[i];
}

size_t largest_floats(const std::vector<SliceCodec>& codecs) {
  size_t bytes = 0;
  for (const SliceCodec& codec : codecs) {
    if (!codec.plain()) bytes = std::max(bytes, codec.bytes());
  }
  return bytes / sizeof(float);
}

std::vector<SliceCodec> codecs_of(const CodecMap& codecs, const SliceMap& map) {
  std::vector<SliceCodec> out;
  out.reserve(static_cast<size_t>(map.slices()));
  for (int slice = 0; slice < map.slices(); ++slice) out.push_back(codecs.of_slice(map, slice));
  return out;
}

}  // namespace

Encoder::Encoder(const Job& job, const TensorTable& table, const SliceMap& map)
    : one_place_(job.strategy.traits().leases),
      keeps_sent_(job.clip_norm > 0 && job.strategy.traits().single_pushes),
      table_(table),
      map_(map),
      codecs_(codecs_of(CodecMap(table, job.codec, job.codec_tensors), map)),
      plain_(largest_floats(codecs_) == 0),
      pool_(largest_floats(codecs_)) {}

Payload Encoder::encode_slice(Range node, int slice, Payload part) {
  const SliceCodec& codec = codecs_.at(static_cast<size_t>(slice));
  const int64_t first = map_.elements(slice).lo;
  if (keeps_sent_) {
    if (!sent_) sent_ = sparse_floats(static_cast<size_t>(map_.total()));
    std::memcpy(sent_.get() + first, part.bytes.data(), part.bytes.size());
  }
  if (codec.plain()) return part;
  std::shared_ptr<float[]>& residual = residual_[one_place_ ? Range{} : node];
  if (!residual) residual = sparse_floats(static_cast<size_t>(map_.total()));
  const std::shared_ptr<float[]> out = pool_.get();
  encode_part(slice, part.floats(), residual.get() + first,
              reinterpret_cast<std::byte*>(out.get()));
  return {out, std::as_bytes(std::span(out.get(), codec.bytes() / sizeof(float)))};
}

void Encoder::encode_part(int slice, const float* gradient, float* residual, std::byte* out) {
  const SliceCodec& codec = codecs_[static_cast<size_t>(slice)];
  const int64_t first = map_.elements(slice).lo;
  std::array<float, kBlockElements> wanted{};
  std::array<float, kBlockElements> decoded{};
  for (int64_t b = 0; b < codec.blocks(); ++b) {
    const Range e = codec.elements(b);
    std::byte* encoded = out + codec.offset(b);
    if (!add(gradient + e.lo, residual + e.lo, e.size(), wanted.data())) refuse(first + e.lo);
    encode_block(codec.codec(b), wanted.data(), e.size(), encoded);
    decode_block(codec.codec(b), encoded, e.size(), decoded.data());
    subtract(wanted.data(), decoded.data(), e.size(), residual + e.lo);
    if (sent_) std::copy_n(decoded.data(), e.size(), sent_.get() + first + e.lo);
  }
}

void Encoder::refuse(int64_t element) const {
  std::string name;
  for (const TensorInfo& tensor : table_.tensors) {
    if (tensor.offset <= element) name = tensor.name;
  }
  throw Error(ErrorCode::kNotFinite,
              "[train] the residual of the codec near tensor " + name +
                  " is not finite: fp16 sends at most 65504, so give the tensor another codec "
                  "(codec-tensors), or use a smaller lr or clip-norm");
}

}  // namespace pushpull
