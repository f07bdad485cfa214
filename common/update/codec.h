// The codecs that encode pushed gradients (key `codec`) and pulled weights (key `pull-codec`), and the
// codec of each part of the flat vector. Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/layout/fixed_tree.h"

namespace pushpull {

// Ordered by how much precision they lose.
enum class CodecKind { kFp32, kFp16, kBf16, kInt8, kTopK };

struct Codec {
  CodecKind kind = CodecKind::kFp32;
  double fraction = 1.0;  // kTopK: share of the elements that are sent

  // Reads "fp32", "fp16", "bf16", "int8" or "topk:0.05". Throws Error(kUsage) that quotes the text.
  static Codec parse(const std::string& text);
  std::string to_string() const;
  friend bool operator==(const Codec&, const Codec&) = default;
};

// Codecs for individual tensors: the first pattern that matches a tensor's name decides. '*'
// matches any characters.
struct TensorCodecs {
  std::vector<std::pair<std::string, Codec>> rules;

  // Reads "fc.*=int8,*.bias=fp32". An empty text has no rules. Throws Error(kUsage) that quotes the
  // text.
  static TensorCodecs parse(const std::string& text);
  std::string to_string() const;
  // Returns the codec of the tensor with this name, or nullopt if no pattern matches.
  std::optional<Codec> of(const std::string& tensor) const;
  friend bool operator==(const TensorCodecs&, const TensorCodecs&) = default;
};

class SliceMap;
struct TensorTable;

// The layout of one encoded slice: its blocks, one after the other.
class SliceCodec {
 public:
  SliceCodec() = default;
  // elements: floats in the slice.
  // blocks: the codec of each block of the slice, in order.
  SliceCodec(int64_t elements, std::vector<Codec> blocks);

  // Returns true if the slice is plain floats.
  bool plain() const { return blocks_.empty(); }
  size_t bytes() const { return bytes_; }

  int64_t blocks() const { return static_cast<int64_t>(blocks_.size()); }
  const Codec& codec(int64_t block) const { return blocks_[static_cast<size_t>(block)]; }
  // Returns the byte offset of the block in the encoded slice.
  size_t offset(int64_t block) const { return offsets_[static_cast<size_t>(block)]; }
  // Returns the range of the slice's elements in the block.
  Range elements(int64_t block) const;

  // Returns false if decoding `encoded` would read or write out of bounds.
  bool fits(const std::byte* encoded, size_t bytes) const {
    return bytes == bytes_ && (plain() || blocks_fit(encoded));
  }
  // Decodes elements [lo, lo + n) of an encoded slice. `fits` must be true, and `lo` and `lo + n`
  // must be block boundaries.
  void decode(const std::byte* encoded, int64_t lo, int64_t n, float* out) const;

 private:
  bool blocks_fit(const std::byte* encoded) const;

  int64_t elements_ = 0;
  size_t bytes_ = 0;
  std::vector<Codec> blocks_;  // empty if the slice is plain
  std::vector<size_t> offsets_;
};

// Maps each block of the flat parameter vector to the codec of its gradients, and gives each
// block's offset in an encoded slice. It is a pure function of tensor table and codecs, so workers
// and servers agree without exchanging it. Codecs work on the fixed blocks of kBlockElements, so
// the bits depend neither on the slice size nor on the number of servers. Plain values; any thread.
class CodecMap {
 public:
  // Every slice is plain.
  CodecMap() = default;
  // codec: for gradients of tensors that match no rule of `tensors`.
  CodecMap(const TensorTable& table, const Codec& codec, const TensorCodecs& tensors);

  // Returns true if no slice is encoded.
  bool plain() const { return blocks_.empty(); }
  SliceCodec of_slice(const SliceMap& map, int slice) const;

 private:
  std::vector<Codec> blocks_;  // of the flat vector; empty if every slice is plain
};

}  // namespace pushpull
