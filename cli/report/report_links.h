// For comparisons over several links: which strategy wins over which link with how many workers,
// next to the prediction of a textbook model of communication. Any thread.
#pragma once

#include <optional>
#include <string>

#include "cli/report/report_data.h"
#include "cli/result/compare_result.h"

namespace pushpull {

// Minimum seconds of communication per step of a ring all-reduce, and below of a parameter server;
// latency is ignored. The servers' links or those of their workers are the bottleneck; slices are
// spread evenly. Source: Patarasuk and Yuan, JPDC 2009 (ring).
//   gradient_bytes: of one worker.
//   bandwidth: of every host's link, bytes/s, each way.
double ring_seconds(double gradient_bytes, int64_t workers, double bandwidth);
double server_seconds(double gradient_bytes, int64_t workers, int64_t servers, double bandwidth);

// Rows are links, columns numbers of workers. Empty if there is only one link.
std::string link_map(const ReportData& data, std::optional<double> target);
// Predicted and measured values, for each link of known bandwidth. Empty if there is none.
std::string link_model(const CompareResult& result, const ReportData& data);
// "100mbit,5ms", or the words for an empty name.
std::string link_name(const std::string& link);

}  // namespace pushpull
