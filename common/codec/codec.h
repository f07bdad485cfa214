// How gradients are made narrow for the wire (key `codec`), and weights for the way back. Plain
// values; any thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pushpull {

// In the order of what they lose.
enum class CodecKind { kFp32, kFp16, kBf16, kInt8, kTopK };

struct Codec {
  CodecKind kind = CodecKind::kFp32;
  double fraction = 1.0;  // kTopK: of the elements that are sent

  // "fp32", "fp16", "bf16", "int8", "topk:0.05". Throws Error(kUsage) that names the text.
  static Codec parse(const std::string& text);
  std::string to_string() const;
  friend bool operator==(const Codec&, const Codec&) = default;
};

// Codecs of single tensors: the first pattern that fits a tensor's name decides. '*' stands for any
// characters.
struct TensorCodecs {
  std::vector<std::pair<std::string, Codec>> rules;

  // "fc.*=int8,*.bias=fp32"; empty: none. Throws Error(kUsage) that names the text.
  static TensorCodecs parse(const std::string& text);
  std::string to_string() const;
  // Of the tensor of this name; empty: no pattern fits.
  std::optional<Codec> of(const std::string& tensor) const;
  friend bool operator==(const TensorCodecs&, const TensorCodecs&) = default;
};

}  // namespace pushpull
