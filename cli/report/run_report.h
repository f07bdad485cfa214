// Renders one run as a self-contained HTML page, with the charts of a comparison. Any thread.
#pragma once

#include <string>

#include "cli/report/run_data.h"

namespace pushpull {

std::string run_report_html(const RunData& data);

}  // namespace pushpull
