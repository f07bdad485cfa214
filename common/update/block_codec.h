// Encodes and decodes one block of at most kBlockElements floats; docs/protocol.md specifies the
// bytes. Uses integer and single-precision arithmetic only, so that every machine gives the same
// bits. Any thread.
//
//   fp16, bf16  IEEE 754 binary16 and the upper half of binary32 (PyTorch's float16 and bfloat16),
//               rounded to nearest, ties to even. A value that would overflow becomes the largest
//               finite one.
//   int8        one scale per block, max |x| / 127, and x / scale rounded to integers (Dettmers et
//               al., 8-bit Optimizers via Block-wise Quantization, ICLR 2022).
//   topk        the elements of largest magnitude and their indices (Aji and Heafield, EMNLP 2017;
//               Lin et al., Deep Gradient Compression, ICLR 2018).
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/update/codec.h"

namespace pushpull {

// Returns the size of an encoded block of n elements: a multiple of 4, so that the next block is
// aligned.
size_t encoded_block_bytes(const Codec& codec, int64_t n);

// Returns how many of n elements topk sends.
int64_t top_elements(double fraction, int64_t n);

// x: n finite floats.
// out: encoded_block_bytes(codec, n) bytes.
void encode_block(const Codec& codec, const float* x, int64_t n, std::byte* out);

// Returns false if decode_block would write beyond n floats. Does not check values: a NaN reaches
// the weights, as it does in plain floats.
bool block_fits(const Codec& codec, const std::byte* in, int64_t n);

// in: a block for which block_fits is true.
// out: n floats, overwritten.
void decode_block(const Codec& codec, const std::byte* in, int64_t n, float* out);

// Convert any number of elements. NaN and infinity survive in bf16.
void to_bf16(const float* x, int64_t n, uint16_t* out);
void from_bf16(const uint16_t* x, int64_t n, float* out);
void round_to_bf16(const float* x, int64_t n, float* out);

}  // namespace pushpull
