#include "datasets/tokenizer.h"

#include <set>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "datasets/tokenizer_json.h"
#include "datasets/utf8.h"

namespace pushpull {

std::string expected_at(std::string_view text, size_t offset) {
  const CodePoint code = first_code_point(text.substr(offset));
  if (code.bytes == 0) {
    return "expected UTF-8, got the byte " + printable(text.substr(offset, 1)) +
           "; convert the text to UTF-8";
  }
  return "expected a character that the tokenizer knows, got " + code_point_text(code.value) + " " +
         printable(text.substr(offset, code.bytes)) +
         "; remove it, or take another tokenizer (tokenizer = bpe knows all)";
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const std::string& name) const {
  std::vector<int32_t> ids;
  const std::optional<size_t> stop = try_encode(text, ids);
  if (!stop) return ids;
  throw Error(ErrorCode::kData, "[data] " + name + ": byte " + std::to_string(*stop) + ": " +
                                    expected_at(text, *stop));
}

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
