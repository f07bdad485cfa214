// Text and numbers as a page of HTML shows them. Everything that comes from outside goes through
// `html`; what it returns is valid inside elements and inside quoted attributes, of XML too. Any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pushpull {

// Escaped; control characters and bytes that are no UTF-8 are shown as \xNN.
std::string html(std::string_view text);
// The same for a text of several lines, which stay lines.
std::string html_lines(std::string_view text);

// "12,345.7"; "not finite" where it is not.
std::string fixed(double value, int decimals);
// How many decimals give a column whose largest value is `largest` three significant digits.
int decimals_for(double largest);
// Three significant digits or all before the point: "0.0123", "1.23", "12,345".
std::string number(double value);
// For ticks, exact for round numbers: "250", "2.5k", "10M".
std::string compact(double value);
// 0.9731 -> "97.3%".
std::string percent(double fraction, int decimals = 1);
// 75.2 -> "1 min 15 s".
std::string duration(double seconds);
// "1 seed", "5 seeds"
std::string counted(int64_t count, const std::string& noun);

}  // namespace pushpull
