// How one block of at most kBlockElements floats is made narrow and wide again; docs/protocol.md
// has the bytes. Portable arithmetic on whole numbers and single floats: the same bits on every
// machine. Any thread.
//
//   fp16, bf16  IEEE 754 binary16 and the upper half of binary32 (PyTorch's float16 and bfloat16),
//               to nearest, ties to even; what would become infinite becomes the largest finite.
//   int8        a scale, max |x| / 127, and x / scale in whole numbers (Dettmers et al., 8-bit
//               Optimizers via Block-wise Quantization, ICLR 2022).
//   topk        the largest magnitudes and where they are (Aji and Heafield, EMNLP 2017; Lin et
//               al., Deep Gradient Compression, ICLR 2018).
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/codec/codec.h"

namespace pushpull {

// Of a block of n elements: whole floats, so that the next block is aligned.
size_t encoded_block_bytes(const Codec& codec, int64_t n);

// Elements of n that topk sends.
int64_t top_elements(double fraction, int64_t n);

// x: n finite floats. out: encoded_block_bytes.
void encode_block(const Codec& codec, const float* x, int64_t n, std::byte* out);

// False: decode_block would write beyond n floats. Values are not looked at: a NaN moves the
// weights as it does in plain floats.
bool block_fits(const Codec& codec, const std::byte* in, int64_t n);

// in: a block that fits. out: n floats, overwritten.
void decode_block(const Codec& codec, const std::byte* in, int64_t n, float* out);

// The pieces that any number of elements may go through. What is not finite stays so in bf16.
void to_bf16(const float* x, int64_t n, uint16_t* out);
void from_bf16(const uint16_t* x, int64_t n, float* out);
void round_to_bf16(const float* x, int64_t n, float* out);

}  // namespace pushpull
