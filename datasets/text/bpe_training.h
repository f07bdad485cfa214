// Trains the vocabulary of a byte-level BPE: as Hugging Face's BpeTrainer with the alphabet of bytes.
// The most frequent pair of neighbours becomes a token; of equally frequent pairs the one with the
// smaller ids. Deterministic: the same text gives the same vocabulary. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "datasets/text/tokenizer_json.h"

namespace pushpull {

// Ids of the bytes, and one merge.
inline constexpr int64_t kLeastBpeVocabulary = 257;

// Returns a vocabulary of at most `vocabulary` tokens: the bytes, then the merges in the order of
// their ranks. It is smaller if no pair occurs twice any more.
//   text: valid UTF-8.
//   vocabulary: at least kLeastBpeVocabulary.
TokenizerFile train_byte_bpe(std::string_view text, int64_t vocabulary);

}  // namespace pushpull
