#include "cli/report/report_provenance.h"

#include <algorithm>
#include <map>
#include <set>

#include "cli/report/html_text.h"
#include "cli/report/report_charts.h"
#include "cli/report/report_links.h"
#include "cli/report/report_page.h"
#include "cli/report/report_tables.h"
#include "common/base/text.h"

namespace pushpull {
namespace {

// The strategies of one seed by the hash that they started with. Runs without a hash are counted
// separately, and so are runs with their own data order.
struct Agreement {
  std::map<std::string, std::set<std::string>> strategies;  // by hash
  int64_t silent = 0;
  int64_t own = 0;
  int64_t runs = 0;
};
using BySeed = std::map<uint64_t, Agreement>;

BySeed agreement(const CompareResult& result, std::string CompareRun::*hash) {
  BySeed out;
  for (const CompareRun& run : result.runs) {
    if (!run.failure.empty()) continue;
    Agreement& seed = out[run.seed];
    ++seed.runs;
    if (hash == &CompareRun::data_order_sha256 && !shares_data_order(run)) {
      ++seed.own;
    } else if ((run.*hash).empty()) {
      ++seed.silent;
    } else {
      seed.strategies[run.*hash].insert(row_name(run));
    }
  }
  return out;
}

std::string joined(const std::set<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::string disagreement(const BySeed& seeds, const std::string& what) {
  std::string out;
  for (const auto& [seed, found] : seeds) {
    if (found.strategies.size() < 2) continue;
    out += "<li>seed " + std::to_string(seed) + ", " + what + ": ";
    for (const auto& [hash, strategies] : found.strategies) {
      out += "<code>" + html(hash.substr(0, 12)) + "</code> (" + html(joined(strategies)) + ") ";
    }
    out += "</li>";
  }
  return out;
}

std::string hash_cell(const Agreement& found) {
  const std::string own = found.own == 0
                              ? ""
                              : "<small>" + plural(found.own, "run") +
                                    " of backup apart: dropped pushes are in no hash</small>";
  if (found.strategies.empty()) {
    return "<td class=\"none\">" + (own.empty() ? "none reported" : own) + "</td>";
  }
  std::string out = found.strategies.size() > 1 ? "<td class=\"bad\">" : "<td>";
  for (const auto& [hash, strategies] : found.strategies) {
    out += "<code class=\"hash\">" + html(hash) + "</code>";
    if (found.strategies.size() > 1) out += "<small>" + html(joined(strategies)) + "</small>";
  }
  if (found.strategies.size() > 1) {
    out += "<small>DIFFERENT: these runs cannot be compared</small>";
  } else {
    const int64_t asked = found.runs - found.own;
    out += "<small>the same in " + std::to_string(asked - found.silent) + " of " +
           plural(asked, "run");
    out += found.silent > 0 ? ", the others report none</small>" : "</small>";
  }
  return out + own + "</td>";
}

std::string hash_table(const CompareResult& result) {
  const BySeed weights = agreement(result, &CompareRun::initial_weights_sha256);
  BySeed order = agreement(result, &CompareRun::data_order_sha256);
  if (weights.empty()) return "";
  std::string out = "<h3>The same start and the same samples?</h3>" + open_table("Hashes") +
                    "<thead><tr><th>seed</th><th>initial weights<small>SHA-256</small></th>"
                    "<th>order of samples<small>SHA-256 of the indices drawn</small></th></tr>"
                    "</thead><tbody>";
  for (const auto& [seed, found] : weights) {
    out += "<tr><th>" + std::to_string(seed) + "</th>" + hash_cell(found) + hash_cell(order[seed]) +
           "</tr>";
  }
  return out + "</tbody>" + close_table();
}

std::string facts(const CompareResult& result, const ReportData& data) {
  std::string libraries;
  for (const auto& [name, version] : result.libraries) {
    if (!libraries.empty()) libraries += ", ";
    libraries.append(name).append(" ").append(version);
  }
  const std::optional<double> target = data.target;
  std::string out = "<dl>";
  out += report_fact("pushpull", result.version);
  out += report_fact("commit", result.commit.empty() ? "unknown" : result.commit);
  out += report_fact("libraries", libraries);
  out += report_fact("machine", result.machine);
  if (result.cores > 0) out += report_fact("cores", std::to_string(result.cores));
  if (!result.worker.empty()) out += report_fact("program of the workers", result.worker);
  out += report_fact("device of the workers", result.device);
  out += report_fact("device of the servers", result.server_device);
  out += report_fact("TCP congestion control", result.congestion_control);
  out += report_fact("began", result.began);
  out += report_fact("took", duration(result.seconds));
  if (result.model_parameters > 0) {
    out += report_fact("model parameters", fixed(static_cast<double>(result.model_parameters), 0));
  }
  out += report_fact("target", target ? data.metric.target_text(*target) : "none asked for");
  out += report_fact("straggler",
                     result.straggler.empty() ? "none" : result.straggler + " (rank:factor)");
  return out + "</dl>";
}

std::string links_table(const CompareResult& result) {
  if (result.links.empty()) return "";
  std::string out = "<h3>Links: asked and measured</h3>" + open_table("Links") +
                    "<thead><tr><th>asked</th><th class=\"n\">measured<small>MB/s</small></th>"
                    "<th class=\"n\">measured<small>Mbit/s</small></th>"
                    "<th class=\"n\">round trip<small>ms</small></th><th>how</th></tr></thead>"
                    "<tbody>";
  for (const LinkMeasured& link : result.links) {
    out += "<tr><th>" + html(link_name(link.asked)) + "</th><td class=\"n\">" +
           number(link.bytes_per_second / 1e6) + "</td><td class=\"n\">" +
           number(link.bytes_per_second * 8 / 1e6) + "</td><td class=\"n\">" +
           number(link.round_trip_ms) + "</td><td>" + html(link.how) + "</td></tr>";
  }
  return out + "</tbody>" + close_table();
}

std::string failures_table(const CompareResult& result, const ReportData& data) {
  if (data.failures == 0) return "";
  std::string out = "<h3 id=\"failures\">Failures</h3>" + open_table("Failures") +
                    "<thead><tr><th>strategy</th><th class=\"n\">workers</th><th class=\"n\">seed"
                    "</th><th>link</th><th class=\"n\">exit</th><th>reason</th></tr></thead>"
                    "<tbody>";
  for (const CompareRun& run : result.runs) {
    if (run.failure.empty()) continue;
    out += "<tr><th>" + html(row_name(run)) + "</th><td class=\"n\">" +
           std::to_string(run.workers) + "</td><td class=\"n\">" + std::to_string(run.seed) +
           "</td><td>" + html(link_name(run.link)) + "</td><td class=\"n\">" +
           std::to_string(run.exit_code) + "</td><td class=\"why\">" + html(run.failure) +
           "</td></tr>";
  }
  return out + "</tbody>" + close_table();
}

std::string or_never(const std::optional<double>& value) {
  return value ? number(*value) : "never";
}

std::string runs_table(const CompareResult& result, const ReportData& data) {
  std::string out = "<details><summary>All " +
                    plural(static_cast<int64_t>(result.runs.size()), "run") +
                    ", in the order in which they ran</summary>" + open_table("All runs") +
                    "<thead><tr><th class=\"n\">no.</th><th>strategy</th><th class=\"n\">workers"
                    "</th><th class=\"n\">seed</th><th>link</th><th class=\"n\">seconds</th>"
                    "<th class=\"n\">samples/s</th><th class=\"n\">" +
                    html(data.metric.name) +
                    "</th>"
                    "<th class=\"n\">to target<small>seconds</small></th><th>folder</th></tr>"
                    "</thead><tbody>";
  int64_t count = 0;
  for (const CompareRun& run : result.runs) {
    out += "<tr><td class=\"n\">" + std::to_string(++count) + "</td><th>" + html(row_name(run)) +
           "</th><td class=\"n\">" + std::to_string(run.workers) + "</td><td class=\"n\">" +
           std::to_string(run.seed) + "</td><td>" + html(run.link) + "</td>";
    if (run.failure.empty()) {
      out += "<td class=\"n\">" + number(run.seconds) + "</td><td class=\"n\">" +
             number(run.samples_per_second) + "</td><td class=\"n\">" +
             (run.test_value ? data.metric.value_text(*run.test_value) : "–") +
             "</td><td class=\"n\">" + (data.target ? or_never(run.seconds_to_target) : "–") +
             "</td>";
    } else {
      out += "<td colspan=\"4\" class=\"bad\">failed</td>";
    }
    out += "<td>" + html(run.out) + "</td></tr>\n";
  }
  return out + "</tbody>" + close_table() + "</details>";
}

// Explains the report's words for strategies that do not push and pull in each step.
std::string about_kinds(const ReportData& data) {
  const auto has = [&](const char* kind) {
    return std::ranges::any_of(data.strategies,
                               [&](const std::string& name) { return name.starts_with(kind); });
  };
  std::string out;
  if (has("backup:")) {
    out +=
        "<li>backup: dropped pushes do not count in samples per second and samples to target. With "
        "as many steps it has learned from fewer samples, in an order of its own.</li>";
  }
  if (has("local:")) {
    out +=
        "<li>local: a round&#39;s push and pull are spread over its steps. Between two rounds "
        "workers drift apart, which staleness does not count.</li>";
  }
  if (has("allreduce:")) {
    out +=
        "<li>allreduce: sums travel while gradients are still computed; wait is the rest "
        "afterwards, the update is in compute, and there is no pull. A byte that one worker sends "
        "to another is pushed by the one and pulled by the other.</li>";
  }
  return out;
}

}  // namespace

std::string warnings(const CompareResult& result, const ReportData& data) {
  std::string out;
  const std::string differ =
      disagreement(agreement(result, &CompareRun::initial_weights_sha256), "initial weights") +
      disagreement(agreement(result, &CompareRun::data_order_sha256), "order of samples");
  if (!differ.empty()) {
    out +=
        "<div class=\"warning loud\" role=\"alert\"><b>This comparison is not fair.</b> Runs of "
        "one seed did not begin with the same weights or did not draw the same samples:<ul>" +
        differ + "</ul></div>";
  }
  if (data.failures > 0) {
    out += "<div class=\"warning\"><b>" + std::to_string(data.failures) + " of " +
           plural(static_cast<int64_t>(result.runs.size()), "run") +
           " failed.</b> They are in no chart. Of the medians, only that of the target counts "
           "them, as not reached. "
           "<a href=\"#failures\">What failed and why</a></div>";
  }
  // Many boxes would push the results off the screen.
  constexpr size_t kMaxBoxes = 3;
  const bool list = result.notes.size() > kMaxBoxes;
  if (list) out += "<div class=\"warning\"><b>Notes</b><ul>";
  for (const std::string& note : result.notes) {
    out += list ? "<li>" + html(note) + "</li>"
                : "<div class=\"warning\"><b>Note:</b> " + html(note) + "</div>";
  }
  return out + (list ? "</ul></div>" : "");
}

std::string how_to_read(const CompareResult& result, const ReportData& data) {
  std::string out = "<ul><li>All processes ran on one machine";
  if (result.cores > 0) out += " with " + plural(result.cores, "core");
  out += data.links.size() > 1 || (!data.links.empty() && !data.links[0].link.empty())
             ? "; links between them were slowed down as described below. "
             : " and communicated over its loopback. ";
  out +=
      "Where there are more processes than cores, workers share them, and a scaling below the "
      "ideal says as much about the machine as about the strategy.</li>"
      "<li>Numbers are medians over seeds; below or behind them are the lowest and "
      "the highest. With few seeds no error can be estimated.</li>"
      "<li>All strategies of a seed begin with the same weights and draw the same samples per "
      "epoch (the hashes below are evidence). Runs were interleaved, so that a machine that "
      "slows down affects all strategies alike.</li>"
      "<li>Time runs from the first step on and includes the evaluations on the way, not the "
      "start of processes or the reading of data. Accuracy is known only where it was evaluated: "
      "curves are steps that hold until the next evaluation, and the time to the target is that "
      "of the first evaluation at or above it.</li>"
      "<li>A seed that never reached the target counts as later than all others, and so does one "
      "that failed; if half of the seeds or more did not reach it, the table says never.</li>"
      "<li>A step is one global batch, even if it consists of several updates. Wait is for "
      "others: from the last byte pushed to the first byte pulled. Staleness counts the updates "
      "between the weights that a gradient was computed on and the update that it made.</li>"
      "<li>Same learning rate for all";
  const bool tuned = [&] {
    for (const CompareRun& run : result.runs) {
      if (!run.tuned.empty()) return true;
    }
    return false;
  }();
  out += tuned
             ? " except for tuned keys: every strategy got as many tries, and the chosen value is "
               "given below its name.</li>"
             : ": the job's own. A strategy may do better with one of its own (--tune).</li>";
  out += about_kinds(data);
  return out + "</ul>";
}

std::string provenance(const CompareResult& result, const ReportData& data) {
  std::string out = "<h3>Command</h3><pre class=\"wrap\">" + html_lines(result.command) + "</pre>";
  out +=
      facts(result, data) + links_table(result) + hash_table(result) + failures_table(result, data);
  out += "<h3>Runs</h3>" + runs_table(result, data);
  if (!result.job_ini.empty()) {
    out += "<details><summary>The job that all runs share</summary><pre tabindex=\"0\">" +
           html_lines(result.job_ini) + "</pre></details>";
  }
  return out;
}

}  // namespace pushpull
