#include "datasets/text/tokenizer.h"

#include "common/base/error.h"
#include "common/base/text.h"
#include "datasets/text/utf8.h"

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

}  // namespace pushpull
