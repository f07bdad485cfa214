// The report's style sheet: inline, two themes by the reader's own choice, no font but theirs.
#pragma once

#include <string_view>

namespace pushpull {

extern const std::string_view kReportStyle;

}  // namespace pushpull
