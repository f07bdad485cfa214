// Byte-level byte-pair encoding as GPT-2 and Hugging Face's tokenizers do it: the text is cut into
// words, a word begins as its bytes, and the pair of neighbours with the lowest rank is merged until
// no known pair is left (Sennrich et al., ACL 2016). Constant after construction; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "datasets/text/tokenizer.h"
#include "datasets/text/tokenizer_json.h"

namespace pushpull {

class ByteBpe final : public Tokenizer {
 public:
  // file: byte_level, with a token for each part and result of its merges.
  explicit ByteBpe(TokenizerFile file);

  int64_t size() const override { return std::ssize(bytes_); }
  std::string kind() const override { return "bpe"; }
  std::optional<size_t> try_encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string to_json() const override { return to_text(file_); }

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t token = 0;  // that replaces the pair
  };
  // Words that one call has encoded already.
  using Known = std::unordered_map<std::string, std::vector<int32_t>>;

  const Merge* merge_of(int32_t left, int32_t right) const;
  // Returns the id and the bytes of the longest added token at the start of `text`, or -1 and 0.
  std::pair<int32_t, size_t> added_at(std::string_view text) const;
  // These two return what try_encode returns, for a piece between added tokens and for a word.
  std::optional<size_t> encode_piece(std::string_view text, Known& known,
                                     std::vector<int32_t>& ids) const;
  std::optional<size_t> encode_word(std::string_view word, std::vector<int32_t>& ids) const;
  // Returns the tokens of a word that begins as these.
  std::vector<int32_t> merged(const std::vector<int32_t>& tokens) const;

  TokenizerFile file_;
  std::vector<std::string> bytes_;                      // by id
  std::array<int32_t, 256> ids_of_bytes_;               // -1 if a byte has no token
  std::unordered_map<uint64_t, Merge> merges_;          // by both parts
  std::vector<std::pair<std::string, int32_t>> added_;  // longer ones first
  std::array<bool, 256> begins_added_{};                // by the first byte
};

}  // namespace pushpull
