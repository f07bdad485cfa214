// common/update/block_codec.cpp compiled once per instruction set; see optimizer_width.h.
#pragma once

#include <vector>

#include "common/update/block_codec.h"

namespace pushpull {

#define PUSHPULL_DECLARE_CODEC_WIDTH(width)                                                 \
  void encode_block_##width(const Codec& codec, const float* x, int64_t n, std::byte* out); \
  void decode_block_##width(const Codec& codec, const std::byte* in, int64_t n, float* out);

PUSHPULL_DECLARE_CODEC_WIDTH(baseline)
#if defined(__x86_64__)
PUSHPULL_DECLARE_CODEC_WIDTH(avx2)
PUSHPULL_DECLARE_CODEC_WIDTH(avx512f)
#endif

struct CodecWidth {
  decltype(encode_block)* encode;
  decltype(decode_block)* decode;
};

// Returns the variants that this machine can run.
inline std::vector<CodecWidth> codec_widths() {
  std::vector<CodecWidth> widths = {{encode_block_baseline, decode_block_baseline}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) widths.push_back({encode_block_avx2, decode_block_avx2});
  if (__builtin_cpu_supports("avx512f")) {
    widths.push_back({encode_block_avx512f, decode_block_avx512f});
  }
#endif
  return widths;
}

}  // namespace pushpull
