// What holds of the parser of key files for any text: for its fuzzer and for tests.
#pragma once

#include <stdexcept>
#include <string_view>

#include "common/base/text.h"
#include "common/keys/key_text.h"

namespace pushpull {

// Whether `text` is a key. Throws where it is one, and is not written in the same words again.
inline bool check_key_text(std::string_view text) {
  const auto key = parse_key(text);
  if (key && trim(key_text(*key)) != trim(text)) throw std::logic_error("it reads another key");
  return key.has_value();
}

}  // namespace pushpull
