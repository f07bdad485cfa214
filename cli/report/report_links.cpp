#include "cli/report/report_links.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "cli/report/html_text.h"
#include "cli/report/report_charts.h"
#include "cli/report/report_tables.h"
#include "common/base/text.h"
#include "common/job/strategy.h"

namespace pushpull {
namespace {

constexpr const char* kRing = "allreduce:ring";

bool without_server(const std::string& strategy) { return strategy.starts_with("allreduce"); }

std::set<int64_t> workers_of(const ReportData& data) {
  std::set<int64_t> all;
  for (const LinkCells& link : data.links) all.insert(link.workers.begin(), link.workers.end());
  return all;
}

std::string map_cell(const std::optional<Winner>& winner, const auto& value) {
  if (!winner) return "<td class=\"none\">none</td>";
  std::string out = "<td class=\"won " + strategy_style(winner->best->colour) + "\">" +
                    strategy_chip(winner->best->strategy, winner->best->colour) + "<small>" +
                    html(value(*winner->best)) + "</small>";
  if (winner->second != nullptr) {
    out += winner->clear ? "<small>clear</small>" : "<small>too close to call</small>";
  }
  return out + "</td>";
}

std::string one_map(const ReportData& data, const std::string& title, const auto& find,
                    const auto& value) {
  const std::set<int64_t> workers = workers_of(data);
  std::string out =
      "<div><h4>" + html(title) + "</h4>" + open_table(title) + "<thead><tr><th>link</th>";
  for (const int64_t count : workers) out += "<th>" + plural(count, "worker") + "</th>";
  out += "</tr></thead><tbody>";
  for (const LinkCells& link : data.links) {
    out += "<tr><th>" + html(link_name(link.link)) + "</th>";
    for (const int64_t count : workers) out += map_cell(find(link, count), value);
    out += "</tr>";
  }
  return out + "</tbody>" + close_table() + "</div>";
}

// Returns the cell for the ring (or else another all-reduce), or for sync (or else another strategy
// with servers).
const Cell* model_partner(const LinkCells& link, int64_t workers, bool ring) {
  if (const Cell* exact = link.find(ring ? kRing : "sync", workers)) return exact;
  for (const Cell* cell : link.of(workers)) {
    if (without_server(cell->strategy) == ring) return cell;
  }
  return nullptr;
}

std::string milliseconds(double seconds) {
  return "<td class=\"n\">" + number(seconds * 1e3) + "</td>";
}

std::string measured(const Cell* cell) {
  const double seconds =
      cell == nullptr ? 0 : cell->split.push + cell->split.wait + cell->split.pull;
  if (seconds <= 0) return "<td class=\"n none\">–</td>";
  return "<td class=\"n\">" + number(seconds * 1e3) + "<small>" + html(cell->strategy) +
         "</small></td>";
}

std::string winner_word(double ring, double server) {
  if (std::abs(ring - server) <= 0.05 * std::max(ring, server)) return "even";
  return ring < server ? "all-reduce" : "server";
}

std::string measured_winner(const Cell* ring, const Cell* server) {
  if (ring == nullptr || server == nullptr || !ring->rate || !server->rate) return "–";
  // The faster strategy needs less time for a sample.
  return winner_word(1 / ring->rate->median, 1 / server->rate->median);
}

std::string model_row(const LinkMeasured& measure, const LinkCells& link, int64_t workers,
                      double gradient_bytes) {
  const Cell* ring = model_partner(link, workers, true);
  const Cell* server = model_partner(link, workers, false);
  const int64_t servers = server == nullptr ? 1 : std::max<int64_t>(server->servers, 1);
  const double by_ring = ring_seconds(gradient_bytes, workers, measure.bytes_per_second);
  const double by_server =
      server_seconds(gradient_bytes, workers, servers, measure.bytes_per_second);
  const std::string predicted = winner_word(by_ring, by_server);
  const std::string found = measured_winner(ring, server);
  const bool other = found != "–" && found != predicted;
  return "<tr><th>" + html(link_name(link.link)) + "<small>" +
         number(measure.bytes_per_second / 1e6) + " MB/s, " + number(measure.round_trip_ms) +
         " ms</small></th><td class=\"n\">" + std::to_string(workers) + "</td><td class=\"n\">" +
         std::to_string(servers) + "</td>" + milliseconds(by_ring) + milliseconds(by_server) +
         "<td>" + predicted + "</td>" + measured(ring) + measured(server) + "<td>" + found +
         (other ? "<small>not as predicted</small>" : "") + "</td></tr>\n";
}

const LinkMeasured* measure_of(const CompareResult& result, const std::string& link) {
  for (const LinkMeasured& measure : result.links) {
    if (measure.asked == link && measure.bytes_per_second > 0) return &measure;
  }
  return nullptr;
}

}  // namespace

double ring_seconds(double gradient_bytes, int64_t workers, double bandwidth) {
  const auto n = static_cast<double>(workers);
  return 2 * (n - 1) * gradient_bytes / (n * bandwidth);
}

double server_seconds(double gradient_bytes, int64_t workers, int64_t servers, double bandwidth) {
  const auto n = static_cast<double>(workers);
  const auto s = static_cast<double>(servers);
  return std::max(gradient_bytes / bandwidth, n * gradient_bytes / (s * bandwidth));
}

std::string link_name(const std::string& link) { return link.empty() ? "loopback" : link; }

std::string link_map(const ReportData& data, std::optional<double> target) {
  if (data.links.size() < 2) return "";
  std::string out = "<div class=\"maps\">" +
                    one_map(data, "Most samples per second", fastest, [](const Cell& cell) {
                      return number(cell.rate->median) + " samples/s";
                    });
  if (target) {
    out += one_map(data, "First at " + data.metric.target_text(*target), first_at_target,
                   [](const Cell& cell) { return number(*cell.seconds.median) + " s"; });
  }
  return out + "</div>";
}

std::string link_model(const CompareResult& result, const ReportData& data) {
  const double gradient_bytes = 4.0 * static_cast<double>(result.model_parameters);
  std::string rows;
  for (const LinkCells& link : data.links) {
    const LinkMeasured* measure = measure_of(result, link.link);
    if (measure == nullptr || gradient_bytes <= 0) continue;
    for (const int64_t workers : link.workers) {
      const auto cells = link.of(workers);
      const bool any = std::ranges::any_of(cells, [](const Cell* c) { return !c->good.empty(); });
      if (workers > 1 && any) rows += model_row(*measure, link, workers, gradient_bytes);
    }
  }
  if (rows.empty()) return "";
  return "<h3>The textbook model beside the measurement</h3><p>With G gradient bytes (here " +
         number(gradient_bytes / 1e6) +
         " MB), n workers, s servers and B bytes/s of the measured link, each way, one step needs "
         "at least 2(n−1)G/(nB) with a ring all-reduce and max(G/B, nG/(sB)) with servers. The "
         "model has no latency, no computing, and nothing that hides communication behind it. "
         "Measured: push, wait and pull of a mean step; winner: the one of the two with more "
         "samples/s.</p>" +
         open_table("Model and measurement") +
         "<thead><tr><th>link<small>measured, round trip</small></th><th class=\"n\">workers</th>"
         "<th class=\"n\">servers</th><th class=\"n\">ring<small>predicted, ms</small></th>"
         "<th class=\"n\">server<small>predicted, ms</small></th><th>winner<small>predicted"
         "</small></th><th class=\"n\">ring<small>measured, ms</small></th><th class=\"n\">server"
         "<small>measured, ms</small></th><th>winner<small>measured</small></th></tr></thead>"
         "<tbody>" +
         rows + "</tbody>" + close_table();
}

}  // namespace pushpull
