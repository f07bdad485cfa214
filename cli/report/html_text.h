// Formats text and numbers for HTML. Everything from outside goes through `html`; its result is
// valid inside elements and quoted attributes, in XML too. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pushpull {

// Escapes the text; shows control characters and invalid UTF-8 as \xNN.
std::string html(std::string_view text);
// The same for several lines, which stay separate.
std::string html_lines(std::string_view text);

// "12,345.7"; "not finite" for NaN and infinity.
std::string fixed(double value, int decimals);
// The number of decimals that gives a column whose largest value is `largest` three significant
// digits.
int decimals_for(double largest);
// Three significant digits, or all digits before the point: "0.0123", "1.23", "12,345".
std::string number(double value);
// For tick labels, exact for round numbers: "250", "2.5k", "10M".
std::string compact(double value);
// 0.9731 -> "97.3%".
std::string percent(double fraction, int decimals = 1);
// 75.2 -> "1 min 15 s".
std::string duration(double seconds);

}  // namespace pushpull
