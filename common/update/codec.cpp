#include "common/update/codec.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/layout/slice_map.h"
#include "common/layout/tensor_table.h"
#include "common/update/block_codec.h"

namespace pushpull {

namespace {

constexpr std::array<std::pair<const char*, CodecKind>, 4> kWords = {{{"fp32", CodecKind::kFp32},
                                                                      {"fp16", CodecKind::kFp16},
                                                                      {"bf16", CodecKind::kBf16},
                                                                      {"int8", CodecKind::kInt8}}};
constexpr std::string_view kTopK = "topk:";

[[noreturn]] void refuse(const std::string& text, const std::string& wanted) {
  throw Error(ErrorCode::kUsage, "[job] codec '" + printable(text) + "' must be " + wanted);
}

}  // namespace

Codec Codec::parse(const std::string& text) {
  for (const auto& [word, kind] : kWords) {
    if (text == word) return {kind, 1.0};
  }
  if (text.starts_with(kTopK)) {
    const auto fraction = parse_real(text.substr(kTopK.size()));
    if (fraction && *fraction > 0.0 && *fraction <= 1.0) return {CodecKind::kTopK, *fraction};
  }
  refuse(text, "fp32, fp16, bf16, int8, or topk:F with 0 < F <= 1");
}

std::string Codec::to_string() const {
  for (const auto& [word, of_word] : kWords) {
    if (kind == of_word) return word;
  }
  return std::string(kTopK) + print_real(fraction);
}

TensorCodecs TensorCodecs::parse(const std::string& text) {
  TensorCodecs out;
  if (text.empty()) return out;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string rule(trim(std::string_view(text).substr(begin, end - begin)));
    const size_t equals = rule.find('=');
    if (equals == std::string::npos || !is_name_pattern(rule.substr(0, equals))) {
      refuse(text, "PATTERN=CODEC,..., as fc.*=int8,*.bias=fp32");
    }
    out.rules.emplace_back(rule.substr(0, equals), Codec::parse(rule.substr(equals + 1)));
    begin = end + 1;
  }
  return out;
}

std::string TensorCodecs::to_string() const {
  std::string out;
  for (const auto& [pattern, codec] : rules) {
    out += (out.empty() ? "" : ",") + pattern + "=" + codec.to_string();
  }
  return out;
}

std::optional<Codec> TensorCodecs::of(const std::string& tensor) const {
  for (const auto& [pattern, codec] : rules) {
    if (name_fits(pattern, tensor)) return codec;
  }
  return std::nullopt;
}

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
