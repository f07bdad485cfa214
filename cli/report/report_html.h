// A comparison as one page of HTML that needs nothing else: no network, no other file, no script.
// Light and dark as the reader's system is, on screens from 400 pixels. Well-formed XML too. Any
// thread.
#pragma once

#include <string>

#include "cli/result/compare_result.h"

namespace pushpull {

std::string report_html(const CompareResult& result);

}  // namespace pushpull
