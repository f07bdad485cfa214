// Parses and validates the JSON header of a safetensors file. Rejects everything that the format
// does not allow. Memory use stays proportional to the text. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace pushpull {

struct SafetensorsHeader {
  struct Entry {
    std::vector<int64_t> shape;
    uint64_t begin = 0;  // byte offset in the data
    uint64_t end = 0;    // begin + 4 * product of shape
  };
  std::map<std::string, Entry> tensors;
  std::map<std::string, std::string> metadata;
};

// Throws Error(kData) naming path, tensor and reason: not JSON, duplicate name, missing or unknown
// field, another dtype, offsets that do not match the shape.
//   dtype: of all tensors, "F32" or "I32".
SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& path,
                                           const char* dtype);

// Throws Error(kData) "[safetensors] PATH: REASON".
[[noreturn]] void throw_safetensors_error(const std::string& path, const std::string& reason);

// Returns the name in quotes, escaped to one line and cut to a bounded length.
std::string quote_name(const std::string& name);

}  // namespace pushpull
