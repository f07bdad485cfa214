#include "cli/report/html_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "common/base/text.h"

namespace pushpull {
namespace {

std::string printed(const char* format, int precision, double value) {
  std::array<char, 400> text{};  // the largest double has 309 digits before the point
  const int length = std::snprintf(text.data(), text.size(), format, precision, value);
  return {text.data(), static_cast<size_t>(std::max(length, 0))};
}

}  // namespace

std::string html(std::string_view text) {
  std::string out;
  for (const char c : printable(text, std::numeric_limits<size_t>::max())) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string html_lines(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    out += html(text.substr(0, end)) + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string fixed(double value, int decimals) {
  if (!std::isfinite(value)) return "not finite";
  std::string text = printed("%.*f", decimals, value);
  if (text.find_first_not_of("-0.") == std::string::npos && text[0] == '-') text.erase(0, 1);
  const size_t first = text[0] == '-' ? 1 : 0;
  const size_t point = std::min(text.find('.'), text.size());
  for (size_t at = point; at > first + 3;) text.insert(at -= 3, ",");
  return text;
}

int decimals_for(double largest) {
  if (!std::isfinite(largest) || largest >= 100 || largest <= 0) return 0;
  return std::clamp(2 - static_cast<int>(std::floor(std::log10(largest))), 0, 5);
}

std::string number(double value) {
  if (value != 0 && std::abs(value) < 1e-4) return printed("%.*e", 1, value);
  return fixed(value, decimals_for(std::abs(value)));
}

std::string compact(double value) {
  if (!std::isfinite(value)) return "not finite";
  const double size = std::abs(value);
  if (size >= 1e9) return printed("%.*g", 6, value / 1e9) + "G";
  if (size >= 1e6) return printed("%.*g", 6, value / 1e6) + "M";
  if (size >= 1e3) return printed("%.*g", 6, value / 1e3) + "k";
  return printed("%.*g", 6, value);
}

std::string percent(double fraction, int decimals) {
  if (!std::isfinite(fraction)) return "not finite";
  return fixed(fraction * 100, decimals) + "%";
}

std::string duration(double seconds) {
  if (!std::isfinite(seconds)) return number(seconds);
  if (seconds < 60 || seconds > 1e12) return number(seconds) + " s";
  const auto whole = static_cast<int64_t>(seconds);
  if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole / 60 % 60) + " min";
}

}  // namespace pushpull
