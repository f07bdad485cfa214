// Which codec the gradients of each block of the flat parameter vector go through, and where a
// block lies in an encoded slice. A pure function of tensor table and codecs, so that workers and
// servers agree without a word, and codecs work on the fixed blocks of kBlockElements, so that the
// bits depend neither on slices nor on servers. Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/codec/codec.h"
#include "common/layout/slice_map.h"
#include "common/layout/tensor_table.h"

namespace pushpull {

// The gradients of one slice on the wire: its blocks one after the other.
class SliceCodec {
 public:
  SliceCodec() = default;
  // blocks: of the slice, in order.
  SliceCodec(int64_t elements, std::vector<Codec> blocks);

  // Plain floats: nothing is encoded.
  bool plain() const { return blocks_.empty(); }
  size_t bytes() const { return bytes_; }

  int64_t blocks() const { return static_cast<int64_t>(blocks_.size()); }
  const Codec& codec(int64_t block) const { return blocks_[static_cast<size_t>(block)]; }
  // Where the block begins in the encoded slice, in bytes.
  size_t offset(int64_t block) const { return offsets_[static_cast<size_t>(block)]; }
  // Elements of the slice that are in the block.
  Range elements(int64_t block) const;

  // False where decoding would touch what is not the slice's.
  bool fits(const std::byte* encoded, size_t bytes) const;
  // Elements [lo, lo + n) of a slice that fits and is not plain; lo begins a block.
  void decode(const std::byte* encoded, int64_t lo, int64_t n, float* out) const;

 private:
  int64_t elements_ = 0;
  size_t bytes_ = 0;
  std::vector<Codec> blocks_;  // empty: plain
  std::vector<size_t> offsets_;
};

class CodecMap {
 public:
  // All slices are plain.
  CodecMap() = default;
  // codec: of the gradients of every tensor that `tensors` has no rule for.
  CodecMap(const TensorTable& table, const Codec& codec, const TensorCodecs& tensors);

  // No slice is encoded.
  bool plain() const { return blocks_.empty(); }
  SliceCodec of_slice(const SliceMap& map, int slice) const;

 private:
  std::vector<Codec> blocks_;  // of the flat vector; empty: all plain
};

}  // namespace pushpull
