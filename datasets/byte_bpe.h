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

#include "datasets/tokenizer.h"
#include "datasets/tokenizer_json.h"

namespace pushpull {

// Trains the vocabulary of a byte-level BPE: as Hugging Face's BpeTrainer with the alphabet of bytes.
// The most frequent pair of neighbours becomes a token; of equally frequent pairs the one with the
// smaller ids. Deterministic: the same text gives the same vocabulary. Any thread.

// Ids of the bytes, and one merge.
inline constexpr int64_t kLeastBpeVocabulary = 257;

// Returns a vocabulary of at most `vocabulary` tokens: the bytes, then the merges in the order of
// their ranks. It is smaller if no pair occurs twice any more.
//   text: valid UTF-8.
//   vocabulary: at least kLeastBpeVocabulary.
TokenizerFile train_byte_bpe(std::string_view text, int64_t vocabulary);

// GPT-2's alphabet: a printable character for each byte, so that a vocabulary of byte strings can be
// written as text (`bytes_to_unicode` in openai/gpt-2, src/encoder.py). Any thread.

// Returns the bytes in the order of their characters: GPT-2's first 256 ids.
const std::array<uint8_t, 256>& bytes_in_order();

// Writes each byte as its character.
std::string to_alphabet(std::string_view bytes);

// Returns the bytes of a text in the alphabet, or nothing if a character is not part of it.
std::optional<std::string> from_alphabet(std::string_view text);

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
