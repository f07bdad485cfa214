// The report's style sheet: inline, light and dark theme by the reader's setting, system fonts
// only. Any thread.
#pragma once

#include <string_view>

namespace pushpull {

std::string_view report_style();

}  // namespace pushpull
