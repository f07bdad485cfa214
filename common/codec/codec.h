// The codecs that encode pushed gradients (key `codec`) and pulled weights (key `pull-codec`).
// Plain values; any thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

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

}  // namespace pushpull
