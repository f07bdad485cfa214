// The figures of a job in Prometheus' text format, version 0.0.4 (docs/watching.md). Plain function;
// any thread.
#pragma once

#include <string>

#include "ps/status/member_document.h"
#include "ps/status/run_figures.h"

namespace pushpull {

std::string prometheus_text(const MembersView& view, const RunFigures& figures);

}  // namespace pushpull
