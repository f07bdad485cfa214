// Reads and writes safetensors files (huggingface/safetensors format: u64 LE header length, JSON
// header, raw little-endian tensors without holes). Only F32 tensors. Any thread; no shared state.
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

struct SafetensorsFile {
  struct Entry {
    std::vector<int64_t> shape;
    size_t first = 0;  // element in `data`
    size_t count = 0;
  };
  std::map<std::string, Entry> tensors;
  std::map<std::string, std::string> metadata;
  std::vector<float> data;
};

// Writes to path exactly (no temporary name: callers that need atomicity write into a folder that
// is renamed) and fsyncs it. Says what was written, hashed on the way. Throws Error(kIo) naming
// path, errno's text, bytes.
FileDigest write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata);

// Throws Error(kData) naming path and what is wrong: not a safetensors file, truncated, overlapping
// or uncovered offsets, header over 100 MB, other dtype, duplicate name. Never allocates more than
// the file's size justifies.
SafetensorsFile read_safetensors(const std::string& path);

}  // namespace pushpull
