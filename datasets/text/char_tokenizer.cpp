#include "datasets/text/char_tokenizer.h"

#include <set>
#include <utility>

#include "common/base/error.h"
#include "datasets/text/tokenizer_json.h"
#include "datasets/text/utf8.h"

namespace pushpull {

CharTokenizer::CharTokenizer(std::vector<uint32_t> tokens) : tokens_(std::move(tokens)) {
  for (const uint32_t code : tokens_) {
    PP_ASSERT(ids_.emplace(code, static_cast<int32_t>(ids_.size())).second);
  }
}

std::unique_ptr<CharTokenizer> CharTokenizer::of(std::string_view text) {
  std::set<uint32_t> found;
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = first_code_point(text.substr(at));
    PP_ASSERT(code.bytes > 0);
    found.insert(code.value);
    at += code.bytes;
  }
  return std::make_unique<CharTokenizer>(std::vector<uint32_t>(found.begin(), found.end()));
}

std::optional<size_t> CharTokenizer::try_encode(std::string_view text,
                                                std::vector<int32_t>& ids) const {
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = first_code_point(text.substr(at));
    const auto known = code.bytes == 0 ? ids_.end() : ids_.find(code.value);
    if (known == ids_.end()) return at;
    ids.push_back(known->second);
    at += code.bytes;
  }
  return std::nullopt;
}

std::string CharTokenizer::decode(std::span<const int32_t> ids) const {
  std::string out;
  for (const int32_t id : ids) {
    if (id >= 0 && id < size()) append_utf8(out, tokens_[static_cast<size_t>(id)]);
  }
  return out;
}

std::string CharTokenizer::to_json() const {
  TokenizerFile file;
  for (const uint32_t code : tokens_) {
    std::string token;
    append_utf8(token, code);
    file.tokens.push_back(std::move(token));
  }
  return to_text(file);
}

}  // namespace pushpull
