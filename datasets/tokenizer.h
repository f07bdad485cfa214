// A tokenizer turns text into the token ids that a model reads, and ids back into text. Constant
// after construction; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pushpull {

// Ids are below this number.
inline constexpr int64_t kMaxVocabulary = 1'000'000;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Returns the size of the vocabulary: ids are 0 to size() - 1.
  virtual int64_t size() const = 0;

  // Returns "char" or "bpe", the value of the key `tokenizer`.
  virtual std::string kind() const = 0;

  // Appends the ids of `text` to `ids`. Returns the offset of the first byte that is not UTF-8 or has
  // no token, or nothing if all of the text was encoded.
  virtual std::optional<size_t> try_encode(std::string_view text,
                                           std::vector<int32_t>& ids) const = 0;

  // Returns the ids of `text`. Throws Error(kData), which names the byte that cannot be encoded.
  //   name: of the text, for the message.
  std::vector<int32_t> encode(std::string_view text, const std::string& name) const;

  // Returns the bytes of these tokens. A token of a byte-level vocabulary may be a part of a
  // character. An id that has no token gives no bytes.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  // Returns the tokenizer as text in the format of Hugging Face's tokenizer.json, from which
  // tokenizer_from_json makes an equal one. Equal tokenizers give equal texts.
  virtual std::string to_json() const = 0;
};

// Describes the byte at which encoding has stopped: what was expected there, and what is there.
std::string expected_at(std::string_view text, size_t offset);

// One token for each character (Unicode code point) that occurs, in the order of their numbers, as
// nanoGPT's shakespeare_char. Constant after construction; thread-safe.
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
