// Reads and writes safetensors files (huggingface/safetensors: u64 little-endian header length,
// JSON header, raw little-endian tensors without gaps): our files of F32 or of I32 tensors, and the floats of files that
// others have written. Any thread; no shared state.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/io/file.h"

namespace pushpull {

// Parses and validates the JSON header of a safetensors file. Rejects everything that the format
// does not allow. Memory use stays proportional to the text. Any thread.
struct SafetensorsHeader {
  struct Entry {
    std::vector<int64_t> shape;
    std::string dtype;
    uint64_t begin = 0;  // byte offset in the data
    uint64_t end = 0;    // begin + product of shape, in bytes of dtype
  };
  std::map<std::string, Entry> tensors;
  std::map<std::string, std::string> metadata;
};

// Throws Error(kData) naming path, tensor and reason: not JSON, duplicate name, missing or unknown
// field, another dtype, offsets that do not match the shape.
//   dtype: of all tensors, "F32" or "I32"; nullptr: each may have any.
SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& path,
                                           const char* dtype);

// Throws Error(kData) "[safetensors] PATH: REASON".
[[noreturn]] void throw_safetensors_error(const std::string& path, const std::string& reason);

// Returns the name in quotes, escaped to one line and cut to a bounded length.
std::string quote_name(const std::string& name);

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

// Weights of a file that another program has written.
struct PretrainedFile {
  SafetensorsFile floats;  // of F32, F16, BF16 and F64 tensors, converted to float
  std::map<std::string, std::string> skipped;  // dtype of each other tensor
};

// Reads a safetensors file, or, if the path ends with .json, the files of an index
// (model.safetensors.index.json: {"weight_map": {tensor: file in the same folder}}). Throws as read_safetensors.
PretrainedFile read_pretrained(const std::string& path);

// The same as read_safetensors for a file of I32 tensors.
IntTensorFile read_int_tensors(const std::string& path);

}  // namespace pushpull
