// Renders a comparison as one self-contained HTML page: no network, no other file, no script. Light
// or dark as the reader's system, for screens from 400 pixels. Also well-formed XML. Any thread.
#pragma once

#include <string>

#include "cli/result/compare_result.h"

namespace pushpull {

std::string report_html(const CompareResult& result);

}  // namespace pushpull
