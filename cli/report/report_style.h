// The report's style sheet: inline, two themes by the reader's own choice, no font but theirs.
#pragma once

#include <string_view>

namespace pushpull {

std::string_view report_style();

}  // namespace pushpull
