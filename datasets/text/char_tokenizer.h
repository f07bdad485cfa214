// One token for each character (Unicode code point) that occurs, in the order of their numbers, as
// nanoGPT's shakespeare_char. Constant after construction; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "datasets/text/tokenizer.h"

namespace pushpull {

class CharTokenizer final : public Tokenizer {
 public:
  // tokens: the character of each id; they differ.
  explicit CharTokenizer(std::vector<uint32_t> tokens);

  // Makes a tokenizer of the characters of `text`, which is valid UTF-8 and not empty.
  static std::unique_ptr<CharTokenizer> of(std::string_view text);

  int64_t size() const override { return std::ssize(tokens_); }
  std::string kind() const override { return "char"; }
  std::optional<size_t> try_encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string to_json() const override;

 private:
  std::vector<uint32_t> tokens_;
  std::unordered_map<uint32_t, int32_t> ids_;
};

}  // namespace pushpull
