// JSON with text from outside: parses files that others may have written and answers over the network,
// and prints values. Any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace pushpull {

// Objects and lists within each other.
inline constexpr int kMaxJsonDepth = 100;

// Returns whether the text has objects and lists more than kMaxJsonDepth deep.
inline bool is_deep_json(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

// Returns a discarded value if the text is not JSON, or is deep: the library copies and destroys values by recursion, which
// a deep one from outside would make overflow the stack.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text) {
  if (is_deep_json(text)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, false);
}

// Returns the text of a value. Bytes that are not UTF-8, as a path may have, become U+FFFD; the library's
// own dump() throws.
//   indent: spaces for each level; -1: all in one line.
template <typename Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace pushpull
