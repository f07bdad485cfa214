// The files that a report consists of, as CMake embeds them in the program (cmake/Embed.cmake).
#pragma once

#include <string_view>

namespace pushpull::page_files {

extern const std::string_view kPageHtml;
extern const std::string_view kPageCss;
extern const std::string_view kPageJs;
extern const std::string_view kChartJs;  // Chart.js, as Debian packages it

}  // namespace pushpull::page_files
