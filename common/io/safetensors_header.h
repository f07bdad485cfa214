// The JSON header of a safetensors file, checked while it is parsed: nothing but what the format
// allows gets through, and memory grows with the text only. Any thread.
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
    uint64_t begin = 0;  // bytes in the data
    uint64_t end = 0;    // begin + 4 * product of shape
  };
  std::map<std::string, Entry> tensors;
  std::map<std::string, std::string> metadata;
};

// Throws Error(kData) naming path, tensor and reason: not JSON, duplicate name, missing or unknown
// field, dtype other than F32, offsets that do not fit the shape.
SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& path);

// "[safetensors] PATH: REASON", kData.
[[noreturn]] void throw_safetensors_error(const std::string& path, const std::string& reason);

// The name in quotes, on one line and of bounded length whatever is in it.
std::string quote_name(const std::string& name);

}  // namespace pushpull
