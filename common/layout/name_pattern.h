// Patterns of tensor names in the values of job keys: '*' matches any characters. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace pushpull {

// Returns true if the text is a pattern: one or more letters, digits, '.', '_', '-' and '*'.
bool is_name_pattern(const std::string& text);

// Returns true if the pattern matches the whole name.
bool name_fits(std::string_view pattern, std::string_view name);

}  // namespace pushpull
