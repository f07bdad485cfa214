#include "cli/report/report_html.h"

#include <algorithm>
#include <set>

#include "cli/report/html_text.h"
#include "cli/report/report_charts.h"
#include "cli/report/report_data.h"
#include "cli/report/report_links.h"
#include "cli/report/report_page.h"
#include "cli/report/report_provenance.h"
#include "cli/report/report_tables.h"
#include "common/base/text.h"

namespace pushpull {
namespace {

// Curves are most of a page. These limits keep the page below a megabyte for hundreds of runs.
constexpr size_t kPointsOfAllCurves = 32000;
constexpr size_t kMaxPoints = 120;  // per curve; more cannot be seen
constexpr size_t kMinPoints = 12;
constexpr size_t kCurvesOfACell = 4;
constexpr size_t kLinksWithCharts = 3;  // further links have tables only

size_t points_per_curve(const ReportData& data) {
  size_t outlines = 0;  // a band adds two edges to its line
  for (size_t i = 0; i < std::min(data.links.size(), kLinksWithCharts); ++i) {
    for (const Cell& cell : data.links[i].cells) outlines += cell.good.size() > 1 ? 3 : 1;
  }
  const size_t each = kPointsOfAllCurves / std::max<size_t>(outlines * kCurvesOfACell, 1);
  return std::clamp(each, kMinPoints, kMaxPoints);
}

std::string part(const std::string& title, const std::string& lead, const std::string& body) {
  return "<h3>" + title + "</h3><p>" + lead + "</p>" + body;
}

constexpr const char* kCurvesLead =
    "Every panel of a row has the same axes. Curves are steps: a value holds until the next "
    "evaluation. Where curves are the same, the one later in the legend covers the others.";
constexpr const char* kSpeedLead = "Samples per second, and whether more workers helped.";
constexpr const char* kSplitLead =
    "A worker's mean step, by activity. Wait: for servers, other workers or the network.";
constexpr const char* kStaleLead =
    "How many updates were made between the weights that a gradient was computed on and its own "
    "update. All seeds together; the last bar collects rare values.";
constexpr const char* kCostsLead =
    "Bytes are payloads that leave and reach all workers per step, CPU seconds the sum over a "
    "role's processes, "
    "memory the largest process of a role.";

std::string first_link(const LinkCells& link, const ReportData& data, size_t points) {
  const std::string over = data.links.size() > 1 ? " Over " + html(link_name(link.link)) + "." : "";
  return report_section("results", "Results", "Median over seeds, lowest to highest below." + over,
                        results_table(link, data.target)) +
         report_section("accuracy", data.metric.title() + " and loss", kCurvesLead + over,
                        curve_charts(link, data.target, points)) +
         report_section("speed", "Speed and scaling", kSpeedLead + over,
                        speed_charts(link, data.target)) +
         report_section("steps", "Where a step’s time goes", kSplitLead + over,
                        split_charts(link)) +
         report_section("staleness", "Staleness", kStaleLead + over, staleness_charts(link)) +
         report_section("costs", "Costs", kCostsLead + over, costs_table(link));
}

// Omits histograms of staleness; the table of costs has its mean and maximum.
std::string charts_of(const LinkCells& link, const ReportData& data, size_t points) {
  return part(data.metric.title() + " and loss", kCurvesLead,
              curve_charts(link, data.target, points)) +
         part("Speed and scaling", kSpeedLead, speed_charts(link, data.target)) +
         part("Where a step’s time goes", kSplitLead, split_charts(link));
}

std::string further_link(const LinkCells& link, const ReportData& data, bool charts,
                         size_t points) {
  return "<details class=\"link\"><summary>" +
         std::string(charts ? "Tables and charts over " : "Tables over ") +
         html(link_name(link.link)) + "</summary>" +
         part("Results", "Median over seeds, lowest to highest below.",
              results_table(link, data.target)) +
         (charts ? charts_of(link, data, points) : "") +
         part("Costs", kCostsLead, costs_table(link)) + "</details>\n";
}

std::string links_section(const CompareResult& result, const ReportData& data, size_t points) {
  std::string body = link_map(data, data.target) + link_model(result, data);
  for (size_t i = 1; i < data.links.size(); ++i) {
    body += further_link(data.links[i], data, i < kLinksWithCharts, points);
  }
  if (body.empty()) return "";
  if (data.links.size() < 2) {
    return report_section("links", "Communication",
                          "What the link allows, and what the strategies achieved.", body);
  }
  return report_section(
      "links", "Which strategy wins over which link",
      "The strategy with the best median over each link with each number of workers. "
      "Clear: no seed of another strategy did as well.",
      body);
}

std::string header(const CompareResult& result, const ReportData& data) {
  std::set<uint64_t> seeds;
  std::set<int64_t> workers;
  for (const CompareRun& run : result.runs) {
    seeds.insert(run.seed);
    workers.insert(run.workers);
  }
  std::string counts;
  for (const int64_t count : workers)
    counts += (counts.empty() ? "" : ", ") + std::to_string(count);
  std::string out = "<header><h1>Strategies compared</h1><p>";
  if (result.runs.empty()) {
    out += "No run was made.";
  } else {
    const auto runs = static_cast<int64_t>(result.runs.size());
    out += std::to_string(data.strategies.size()) +
           (data.strategies.size() == 1 ? " strategy" : " strategies") + " · " + counts +
           (counts == "1" ? " worker" : " workers") + " · " +
           plural(static_cast<int64_t>(seeds.size()), "seed") + " · " +
           plural(static_cast<int64_t>(data.links.size()), "link") + " · " + plural(runs, "run") +
           " in " + duration(result.seconds);
    if (!result.straggler.empty()) {
      const std::string rank = result.straggler.substr(0, result.straggler.find(':'));
      const std::string factor = result.straggler.substr(result.straggler.find(':') + 1);
      out += " · worker " + html(rank) + " made " + html(factor) + " times slower";
    }
  }
  out += "</p><p>" + html(result.machine) + (result.began.empty() ? "" : " · ") +
         html(result.began) + "</p>";
  out += "<nav aria-label=\"Sections\">";
  const bool any = !data.links.empty();
  if (any) {
    out += "<a href=\"#results\">Results</a><a href=\"#accuracy\">" + data.metric.title() +
           " and loss</a>"
           "<a href=\"#speed\">Speed</a><a href=\"#steps\">Time of a step</a>"
           "<a href=\"#staleness\">Staleness</a><a href=\"#costs\">Costs</a>";
  }
  if (data.links.size() > 1) out += "<a href=\"#links\">Links</a>";
  return out +
         "<a href=\"#reading\">How to read this</a><a href=\"#provenance\">Provenance</a>"
         "</nav></header>\n";
}

}  // namespace

std::string report_html(const CompareResult& result) {
  const ReportData data = report_data(result);
  const size_t points = points_per_curve(data);
  std::string out = header(result, data) + warnings(result, data);
  if (!data.links.empty()) {
    out += headline(data.links[0], data.target, data.links.size() > 1) +
           first_link(data.links[0], data, points) + links_section(result, data, points);
  }
  out +=
      report_section("reading", "How to read this",
                     "The meaning of these numbers, and their limits.", how_to_read(result, data));
  out += report_section("provenance", "Provenance", "Everything needed to repeat the comparison.",
                        provenance(result, data));
  return report_page("pushpull: strategies compared", out);
}

}  // namespace pushpull
