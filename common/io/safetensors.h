// Reads and writes safetensors files (huggingface/safetensors: u64 little-endian header length,
// JSON header, raw little-endian tensors without gaps): files of F32 tensors, and files of I32
// tensors. Any thread; no shared state.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/io/file.h"

namespace pushpull {

struct NamedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::span<const float> data;
};

template <class T>
struct TensorFile {
  struct Entry {
    std::vector<int64_t> shape;
    size_t first = 0;  // index in `data`
    size_t count = 0;
  };
  std::map<std::string, Entry> tensors;
  std::map<std::string, std::string> metadata;
  std::vector<T> data;
};
using SafetensorsFile = TensorFile<float>;
using IntTensorFile = TensorFile<int32_t>;

// Writes `path` directly and fsyncs it; a caller that needs atomicity writes into a folder that it
// renames. Returns size and hash. Throws Error(kIo) naming path, errno's text and bytes.
FileDigest write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata);

// Throws Error(kData) naming path and reason: not a safetensors file, truncated, overlapping or
// uncovered offsets, a header over 100 MB, another dtype, a duplicate name. Memory use stays
// proportional to the file's size.
SafetensorsFile read_safetensors(const std::string& path);

// The same for a file of I32 tensors.
IntTensorFile read_int_tensors(const std::string& path);

}  // namespace pushpull
