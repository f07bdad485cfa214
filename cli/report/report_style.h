// The report's style sheet: inline, light or dark theme by the reader's system setting, system
// fonts only. Any thread.
#pragma once

#include <string_view>

namespace pushpull {

std::string_view report_style();

}  // namespace pushpull
