#include "common/base/strict_number.h"

#include <array>
#include <charconv>
#include <cmath>

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

}  // namespace pushpull
