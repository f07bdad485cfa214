// The properties that the parser of key files has for any text, for its fuzzer and its tests.
#pragma once

#include <stdexcept>
#include <string_view>

#include "common/base/text.h"
#include "common/net/key_text.h"

namespace pushpull {

// Returns whether `text` is a key. Throws std::logic_error if the key's text differs from it.
inline bool check_key_text(std::string_view text) {
  const auto key = parse_key(text);
  if (key && trim(key_text(*key)) != trim(text)) throw std::logic_error("the key has another text");
  return key.has_value();
}

}  // namespace pushpull
