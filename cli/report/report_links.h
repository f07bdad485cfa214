// Where links were varied: who wins over which link with how many workers, beside what the
// textbook's model of communication says. Any thread.
#pragma once

#include <optional>
#include <string>

#include "cli/report/report_data.h"
#include "cli/result/compare_result.h"

namespace pushpull {

// Seconds that one step's communication takes at least, latency left out.
// Source: Patarasuk and Yuan, JPDC 2009 (ring); the server's links are the bottleneck or its
// workers' own, with the slices spread evenly.
//   gradient_bytes: of one worker; bandwidth: of every host's link, bytes/s, each way
double ring_seconds(double gradient_bytes, int64_t workers, double bandwidth);
double server_seconds(double gradient_bytes, int64_t workers, int64_t servers, double bandwidth);

// Rows are links, columns numbers of workers. Empty where there is but one link.
std::string link_map(const ReportData& data, std::optional<double> target);
// Predicted beside measured, for each link whose bandwidth is known. Empty where none is.
std::string link_model(const CompareResult& result, const ReportData& data);
// "100mbit,5ms", or what an empty one means.
std::string link_name(const std::string& link);

}  // namespace pushpull
