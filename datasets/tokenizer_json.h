// Reads and writes tokenizer.json, the format of Hugging Face's tokenizers, as far as GPT-2 and
// vocabularies of characters use it: a BPE model, without a normalizer. The file is not trusted. Any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "datasets/tokenizer.h"

namespace pushpull {

// The part of a file that matters. Strings are as in the file; in a byte-level vocabulary each byte
// is one character of GPT-2's alphabet.
struct TokenizerFile {
  bool byte_level = false;          // pre_tokenizer: ByteLevel; else none: one word
  bool add_prefix_space = false;    // byte level: the text begins with a blank
  std::vector<std::string> tokens;  // by id; "" where an id has no token
  std::vector<std::pair<std::string, std::string>> merges;  // in the order of their ranks
  std::map<int32_t, std::string> added;                     // found in the text before all else
};

// Reads a file's text. Throws Error(kData), which names `name`, the place and the problem.
TokenizerFile parse_tokenizer_file(const std::string& json, const std::string& name);

std::string to_text(const TokenizerFile& file);

// Makes the tokenizer that a file's text describes. Throws Error(kData) as parse_tokenizer_file.
std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& json, const std::string& name);

// Reads the file `path`, at most 64 MiB. Throws Error(kData).
std::unique_ptr<Tokenizer> read_tokenizer(const std::string& path);

}  // namespace pushpull
