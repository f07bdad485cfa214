#include "cli/run/shell_command.h"

#include <string_view>

namespace pushpull {

std::string shell_command(const std::string& program, const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,=+@%";
  std::string text = program;
  for (const std::string& word : words) {
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      text.append(" ").append(word);
      continue;
    }
    text += " '";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += "'";
  }
  return text;
}

}  // namespace pushpull
