#include "common/base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "common/base/error.h"

namespace pushpull {
namespace {

template <class T>
std::optional<T> parse_whole_text(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<int64_t> parse_int64(std::string_view text) {
  return parse_whole_text<int64_t>(text);
}

std::optional<uint64_t> parse_uint64(std::string_view text) {
  return parse_whole_text<uint64_t>(text);
}

std::optional<double> parse_real(std::string_view text) {
  const auto value = parse_whole_text<double>(text);
  if (!value || !std::isfinite(*value)) return std::nullopt;  // from_chars reads "inf" and "nan"
  return value;
}

std::string print_real(double value) {
  std::array<char, 32> text{};  // the longest double has 24 characters
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  PP_ASSERT(error == std::errc());
  return {text.data(), end};
}

namespace {

constexpr size_t kLongestName = 64;  // longer than any option name; bounds the work on junk
constexpr size_t kShortestAbbreviation = 3;

// Other trainers' names for our keys that an edit distance would not find.
const std::map<std::string, std::string>& other_words() {
  static const std::map<std::string, std::string> words = {
      {"batch", "global-batch"},
      {"batch-size", "global-batch"},
      {"gamma", "lr-gamma"},
      {"learning-rate", "lr"},
      {"max-steps", "steps"},
      {"microbatch-size", "micro-batch"},
      {"num-epochs", "epochs"},
      {"num-threads", "threads"},
      {"scheduler", "lr-schedule"},
      {"staleness", "strategy"},
      {"warmup", "warmup-steps"},
      {"wd", "weight-decay"},
      {"max-grad-norm", "clip-norm"},
      {"output", "out"},
      {"np", "workers"},
      {"nproc-per-node", "workers"},
      {"nproc", "workers"},
      {"num-workers", "workers"},
      {"gpus", "device"},
      {"fp16", "precision"},
      {"bf16", "precision"},
      {"amp", "precision"},
      {"log-dir", "out"},
      {"mnist", "idx"},
      {"fashion-mnist", "idx"},
      {"cifar-10", "cifar10"},
      {"imagefolder", "folder"},
      {"image-folder", "folder"},
      {"imagenet", "folder"},
      {"image-size", "input"},
      {"img-size", "input"},
  };
  return words;
}

std::string normalized(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c == '_') c = '-';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// Source: Wagner & Fischer, J. ACM 21 (1974), one row at a time.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(const std::string& typed, const std::vector<std::string>& names) {
  if (typed.empty() || typed.size() > kLongestName) return "";
  const std::string word = normalized(typed);
  const auto known = other_words().find(word);
  if (known != other_words().end() && std::ranges::count(names, known->second) > 0) {
    return known->second;
  }
  std::string best;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;  // more is too different
  for (const std::string& name : names) {
    const bool abbreviates = word.size() >= kShortestAbbreviation && name.starts_with(word);
    const size_t distance = abbreviates ? 0 : edit_distance(word, name);
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(const std::string& typed, const std::vector<std::string>& names,
                         const std::string& prefix) {
  const std::string name = nearest_name(typed, names);
  return name.empty() ? "" : "; did you mean " + prefix + name + "?";
}

namespace {

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7f; }

// Returns the length in bytes of the UTF-8 sequence at the start of `text`. Returns 0 if it is
// invalid (RFC 3629, section 4: no overlong forms, no surrogates, nothing above U+10FFFF) or a C1
// control (U+0080 to U+009F), with which some terminals begin escape sequences.
size_t utf8_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return 1;
  const size_t length = first < 0xc2   ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  if (length == 0 || length > text.size()) return 0;
  uint32_t code = first & (0x7fU >> length);
  for (size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0U) != 0x80U) return 0;
    code = (code << 6U) | (next & 0x3fU);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool control = length == 2 && code < 0xa0;
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return control || overlong || surrogate || code > 0x10ffff ? 0 : length;
}

void append_escaped(std::string& out, unsigned char c) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += "\\x";
  out += kDigits[c >> 4U];
  out += kDigits[c & 15U];
}

}  // namespace

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

bool is_plain_text(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0 || is_control(static_cast<unsigned char>(text[0]))) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= max_bytes) return out + "...";
    const auto first = static_cast<unsigned char>(text[0]);
    const size_t length = utf8_length(text);
    if (length == 0 || is_control(first)) {
      append_escaped(out, first);
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out;
}

std::string clock_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0.0) return "?";
  const long s = std::lround(seconds);
  std::array<char, 64> text{};
  if (s >= 3600) {
    std::snprintf(text.data(), text.size(), "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%ld:%02ld", s / 60, s % 60);
  }
  return text.data();
}

std::string hex_text(uint64_t number) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (int shift = 60; shift >= 0; shift -= 4) out += kDigits[number >> shift & 15];
  return out;
}

std::string plural(int64_t count, std::string_view noun) {
  std::string text = std::to_string(count);
  text.append(" ").append(noun);
  if (count != 1) text += 's';
  return text;
}

}  // namespace pushpull
