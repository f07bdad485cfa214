// For comparisons over several links: the winning strategy per link and number of workers, next to
// the prediction of a textbook model of communication. Any thread.
#pragma once

#include <optional>
#include <string>

#include "cli/report/report_data.h"
#include "cli/result/compare_result.h"

namespace pushpull {

// Returns the minimum seconds of communication per step of a ring all-reduce; server_seconds, of a
// parameter server. Latency is ignored. The bottleneck is the servers' links or the workers';
// slices are spread evenly. Source: Patarasuk and Yuan, JPDC 2009 (ring).
//   gradient_bytes: of one worker.
//   bandwidth: of every host's link, bytes/s, each way.
double ring_seconds(double gradient_bytes, int64_t workers, double bandwidth);
double server_seconds(double gradient_bytes, int64_t workers, int64_t servers, double bandwidth);

// Returns a table with links as rows and numbers of workers as columns. Empty if there is only one
// link.
std::string link_map(const ReportData& data, std::optional<double> target);
// Returns predicted and measured values for each link of known bandwidth. Empty if there is none.
std::string link_model(const CompareResult& result, const ReportData& data);
// Returns "100mbit,5ms", or the words for loopback if the name is empty.
std::string link_name(const std::string& link);

}  // namespace pushpull
