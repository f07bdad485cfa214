#include "models/ops/choices.h"

#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull::ops {

namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::kProtocol, "[choices] " + why +
                                        "; the job's algorithms come from the first worker: "
                                        "run the same program on every host");
}

bool is_key(const std::string& text) {
  return !text.empty() && text.find(' ') == std::string::npos && is_plain_text(text);
}

bool is_value(const std::string& text) { return !text.empty() && is_plain_text(text); }

}  // namespace

Choices Choices::parse(const std::string& text) {
  if (text.size() > kMaxBytes) {
    refuse("expected at most " + std::to_string(kMaxBytes) + " bytes, got " +
           std::to_string(text.size()));
  }
  Choices choices;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end == std::string::npos ? end : end - at);
    if (end == std::string::npos) refuse("the last line is cut off: '" + printable(line) + "'");
    const size_t blank = line.find(' ');
    const std::string key = line.substr(0, blank);
    const std::string value = blank == std::string::npos ? "" : line.substr(blank + 1);
    if (!is_key(key) || !is_value(value)) {
      refuse("expected 'KEY VALUE', got '" + printable(line) + "'");
    }
    if (!choices.of_.emplace(key, value).second) {
      refuse("two choices for '" + printable(key) + "'");
    }
    at = end + 1;
  }
  return choices;
}

std::string Choices::text() const {
  std::string text;
  for (const auto& [key, value] : of_) text.append(key).append(" ").append(value).append("\n");
  return text;
}

const std::string* Choices::find(const std::string& key) const {
  const auto found = of_.find(key);
  return found == of_.end() ? nullptr : &found->second;
}

void Choices::set(const std::string& key, std::string value) {
  PP_ASSERT(is_key(key) && is_value(value));
  of_[key] = std::move(value);
}

}  // namespace pushpull::ops
