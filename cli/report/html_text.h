// Formats text and numbers for HTML. All text from outside goes through `html`; the result is valid
// inside elements and quoted attributes, in XML too. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pushpull {

// Escapes the text; shows control characters and invalid UTF-8 as \xNN.
std::string html(std::string_view text);
// Like `html`, but keeps line breaks.
std::string html_lines(std::string_view text);

// Returns "12,345.7", or "not finite" for NaN and infinity.
std::string fixed(double value, int decimals);
// Returns the number of decimals that shows `largest`, the largest value of a column, with three
// significant digits.
int decimals_for(double largest);
// Returns three significant digits, or all digits before the point: "0.0123", "1.23", "12,345".
std::string number(double value);
// For tick labels, exact for round numbers: "250", "2.5k", "10M".
std::string compact(double value);
// 0.9731 -> "97.3%".
std::string percent(double fraction, int decimals = 1);
// 75.2 -> "1 min 15 s".
std::string duration(double seconds);

}  // namespace pushpull
