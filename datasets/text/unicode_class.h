// The classes of characters that GPT-2's rules for words distinguish, by Unicode's general category.
// Any thread.
#pragma once

#include <cstdint>

namespace pushpull {

enum class CharacterClass {
  kLetter,  // categories L*
  kNumber,  // categories N*
  kSpace,   // property White_Space
  kOther,
};

CharacterClass class_of(uint32_t code);

}  // namespace pushpull
