#include "common/codec/codec_map.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/codec/block_codec.h"
#include "common/layout/slice_map.h"
#include "common/layout/tensor_table.h"

namespace pushpull {

namespace {

Codec codec_of(const TensorInfo& tensor, const Codec& codec, const TensorCodecs& tensors) {
  // running statistics are averages, not gradients: an encoding error would not average out
  if (tensor.rule == UpdateRule::kAverage) return {};
  return tensors.of(tensor.name).value_or(codec);
}

// CodecKind is ordered by loss of precision.
const Codec& more_exact(const Codec& a, const Codec& b) {
  if (a.kind != b.kind) return a.kind < b.kind ? a : b;
  return a.fraction >= b.fraction ? a : b;
}

bool is_plain(const Codec& codec) { return codec.kind == CodecKind::kFp32; }

}  // namespace

SliceCodec::SliceCodec(int64_t elements, std::vector<Codec> blocks)
    : elements_(elements), bytes_(static_cast<size_t>(elements) * sizeof(float)) {
  if (std::all_of(blocks.begin(), blocks.end(), is_plain)) return;
  blocks_ = std::move(blocks);
  size_t offset = 0;
  for (int64_t b = 0; b < std::ssize(blocks_); ++b) {
    offsets_.push_back(offset);
    offset += encoded_block_bytes(codec(b), this->elements(b).size());
  }
  bytes_ = offset;
}

Range SliceCodec::elements(int64_t block) const {
  const int64_t lo = block * kBlockElements;
  return {lo, std::min(lo + kBlockElements, elements_)};
}

bool SliceCodec::blocks_fit(const std::byte* encoded) const {
  for (int64_t b = 0; b < blocks(); ++b) {
    if (!block_fits(codec(b), encoded + offset(b), elements(b).size())) return false;
  }
  return true;
}

void SliceCodec::decode(const std::byte* encoded, int64_t lo, int64_t n, float* out) const {
  PP_ASSERT(lo % kBlockElements == 0 && !plain());
  for (int64_t b = lo / kBlockElements; n > 0; ++b) {
    const int64_t size = elements(b).size();
    PP_ASSERT(size <= n);
    decode_block(codec(b), encoded + offset(b), size, out);
    out += size;
    n -= size;
  }
}

CodecMap::CodecMap(const TensorTable& table, const Codec& codec, const TensorCodecs& tensors) {
  std::vector<Codec> blocks;
  for (const TensorInfo& tensor : table.tensors) {
    if (tensor.size == 0) continue;
    const Codec own = codec_of(tensor, codec, tensors);
    const auto first = static_cast<size_t>(tensor.offset / kBlockElements);
    const auto last = static_cast<size_t>((tensor.offset + tensor.size - 1) / kBlockElements);
    for (size_t b = first; b <= last; ++b) {
      if (b == blocks.size()) {
        blocks.push_back(own);
      } else {
        blocks[b] = more_exact(blocks[b], own);
      }
    }
  }
  for (size_t b = 0; b < blocks.size(); ++b) {
    const auto lo = static_cast<int64_t>(b) * kBlockElements;
    const int64_t n = std::min(kBlockElements, table.total - lo);
    // topk with a large fraction, or a block of a few elements, may not save anything
    if (encoded_block_bytes(blocks[b], n) >= encoded_block_bytes({}, n)) blocks[b] = {};
  }
  if (!std::all_of(blocks.begin(), blocks.end(), is_plain)) blocks_ = std::move(blocks);
}

SliceCodec CodecMap::of_slice(const SliceMap& map, int slice) const {
  const int64_t elements = map.elements(slice).size();
  if (plain()) return {elements, {}};
  const Range blocks = map.blocks(slice);
  return {elements, {blocks_.begin() + blocks.lo, blocks_.begin() + blocks.hi}};
}

}  // namespace pushpull
