#include "cli/report/report_tables.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "cli/report/html_text.h"
#include "cli/report/report_charts.h"
#include "cli/report/report_links.h"
#include "common/base/text.h"

namespace pushpull {
namespace {

constexpr const char* kNothing = "<td class=\"n none\">–</td>";

std::string head(const std::string& name, const std::string& unit = "") {
  return "<th class=\"n\">" + html(name) +
         (unit.empty() ? "" : "<small>" + html(unit) + "</small>") + "</th>";
}

std::string cell_of(const std::string& text, const std::string& range, bool best = false) {
  return std::string("<td class=\"n") + (best ? " best" : "") + "\">" + text +
         (range.empty() ? "" : "<small>" + range + "</small>") + "</td>";
}

// Returns "low–high", or "" if they are equal.
std::string between(const std::string& low, const std::string& high) {
  return low == high ? "" : low + "–" + high;
}

std::string spread_cell(const std::optional<Spread>& value, int decimals, bool best = false) {
  if (!value) return kNothing;
  std::string range;
  if (value->count > 1) range = between(fixed(value->min, decimals), fixed(value->max, decimals));
  return cell_of(fixed(value->median, decimals), range, best);
}

std::string value_cell(const MetricStyle& metric, const std::optional<Spread>& value, bool best) {
  if (!value) return kNothing;
  std::string range;
  if (value->count > 1) {
    range = between(metric.value_text(value->min), metric.value_text(value->max));
  }
  return cell_of(metric.value_text(value->median), range, best);
}

std::string reached_cell(const Reached& there, int decimals, bool best) {
  if (there.reached == 0) return cell_of("never", "");
  const bool all = there.reached == there.asked;
  const std::string low = fixed(*there.min, decimals);
  const std::string high = all ? fixed(*there.max, decimals) : "never";
  return cell_of(there.median ? fixed(*there.median, decimals) : "never", between(low, high), best);
}

std::string runs_cell(const Cell& cell) {
  const size_t all = cell.good.size() + cell.failed.size();
  if (cell.failed.empty()) return "<td class=\"n\">" + std::to_string(all) + "</td>";
  return "<td class=\"n bad\">" + std::to_string(cell.failed.size()) + " of " +
         std::to_string(all) + "<small>failed</small></td>";
}

std::string name_cell(const Cell& cell) {
  std::string out = "<th>" + strategy_chip(cell.strategy, cell.colour);
  if (!cell.tuned.empty()) out += "<small>tuned: " + html(cell.tuned) + "</small>";
  return out + "</th>";
}

template <typename Value>
int decimals_of(const LinkCells& link, const Value& value) {
  double largest = 0;
  for (const Cell& cell : link.cells) {
    if (const std::optional<double> found = value(cell)) largest = std::max(largest, *found);
  }
  return decimals_for(largest);
}

bool is(const std::optional<Winner>& winner, const Cell& cell) {
  return winner && winner->clear && winner->best == &cell;
}

std::string group_row(int64_t workers, size_t columns) {
  return "<tr class=\"group\"><th>" + plural(workers, "worker") + "</th><td colspan=\"" +
         std::to_string(columns - 1) + "\"></td></tr>";
}

std::string verdict(const Winner& winner) {
  if (winner.clear) return ". No seed of another did as well.";
  return winner.best->good.size() < 2 ? ". One seed: chance is not ruled out."
                                      : ". Too close to call: ranges overlap.";
}

std::string card(const std::string& title, const std::optional<Winner>& winner, const auto& value) {
  std::string out = "<div class=\"card\"><h3>" + html(title) + "</h3>";
  if (!winner) return out + "<p class=\"big\">none</p></div>";
  out += "<p class=\"big\">" + strategy_chip(winner->best->strategy, winner->best->colour) +
         "</p><p><b>" + html(value(*winner->best)) + "</b>";
  if (winner->second != nullptr) {
    out += "; next: " + html(winner->second->strategy) + ", " + html(value(*winner->second)) +
           verdict(*winner);
  }
  return out + "</p></div>";
}

std::set<std::string> roles_of(const LinkCells& link, std::map<std::string, Spread> Cell::*values) {
  std::set<std::string> roles;
  for (const Cell& cell : link.cells) {
    for (const auto& [role, value] : cell.*values) roles.insert(role);
  }
  return roles;
}

std::string role_cell(const std::map<std::string, Spread>& values, const std::string& role,
                      int decimals) {
  const auto found = values.find(role);
  if (found == values.end()) return kNothing;
  return spread_cell(found->second, decimals);
}

std::string staleness_cell(const Cell& cell) {
  if (!cell.staleness_mean) return kNothing;
  if (cell.staleness_max == 0) return cell_of("0", "");
  return cell_of(fixed(*cell.staleness_mean, 2), "max " + std::to_string(cell.staleness_max));
}

}  // namespace

std::string open_table(const std::string& about) {
  return "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"" + html(about) +
         "\"><table>";
}

std::string close_table() { return "</table></div>\n"; }

std::string headline(const LinkCells& link, std::optional<double> target, bool others) {
  if (link.workers.empty()) return "";
  const int64_t workers = link.workers.back();
  const std::string with =
      " with " + plural(workers, "worker") + (others ? " over " + link_name(link.link) : "");
  std::string out = "<div class=\"cards\">";
  out += card("Most samples per second" + with, fastest(link, workers),
              [](const Cell& cell) { return number(cell.rate->median) + " samples/s"; });
  if (target) {
    out += card("First at " + compact(*target * link.metric.scale) + link.metric.unit + with,
                first_at_target(link, workers), [](const Cell& cell) {
                  return number(*cell.seconds.median) + " s in " +
                         std::to_string(cell.seconds.reached) + " of " +
                         plural(cell.seconds.asked, "seed");
                });
  }
  const MetricStyle& metric = link.metric;
  out += card((metric.counts ? "Most accurate" : "Best " + metric.name) + " at the end" + with,
              best_value(link, workers),
              [&metric](const Cell& cell) { return metric.value_text(cell.value->median); });
  return out + "</div>";
}

std::string results_table(const LinkCells& link, std::optional<double> target) {
  const int rate = decimals_of(
      link, [](const Cell& c) { return c.rate ? std::optional(c.rate->max) : std::nullopt; });
  const int seconds = decimals_of(link, [](const Cell& c) { return c.seconds.max; });
  std::string out = open_table("Results") + "<thead><tr><th>strategy</th>" + head("runs") +
                    head("samples/s", "median, range") + head("scaling", "× own 1 worker") +
                    head("final " + link.metric.name, "median, range");
  if (target)
    out +=
        head("at target", "seeds") + head("time to target", "seconds") + head("samples to target");
  out += "</tr></thead><tbody>";
  for (const int64_t workers : link.workers) {
    out += group_row(workers, target ? 8 : 5);
    const auto speed = fastest(link, workers);
    const auto first = first_at_target(link, workers);
    const auto best = best_value(link, workers);
    for (const Cell* cell : link.of(workers)) {
      out += "<tr>" + name_cell(*cell) + runs_cell(*cell) +
             spread_cell(cell->rate, rate, is(speed, *cell));
      out += cell->scaling ? cell_of(fixed(*cell->scaling, 2), "") : kNothing;
      out += value_cell(link.metric, cell->value, is(best, *cell));
      if (target) {
        out += cell_of(std::to_string(cell->seconds.reached) + " of " +
                           std::to_string(cell->seconds.asked),
                       "") +
               reached_cell(cell->seconds, seconds, is(first, *cell)) +
               reached_cell(cell->samples, 0, false);
      }
      out += "</tr>\n";
    }
  }
  return out + "</tbody>" + close_table() +
         "<p class=\"caption\">Bold: best with as many workers in every seed (no range overlaps; "
         "two seeds or more).</p>";
}

std::string costs_table(const LinkCells& link) {
  const auto cpu_roles = roles_of(link, &Cell::cpu);
  const auto peak_roles = roles_of(link, &Cell::peak);
  const int cpu = decimals_of(link, [](const Cell& cell) {
    double most = 0;
    for (const auto& [role, value] : cell.cpu) most = std::max(most, value.max);
    return std::optional(most);
  });
  const bool drops = std::ranges::any_of(link.cells, [](const Cell& c) { return c.dropped > 0; });
  std::string out = open_table("Costs") + "<thead><tr><th>strategy</th>" + head("servers") +
                    head("staleness", "mean, max") + head("pushed", "MB per step") +
                    head("pulled", "MB per step");
  if (drops) out += head("pushes dropped", "all seeds");
  for (const std::string& role : cpu_roles) out += head("CPU " + role + "s", "seconds");
  for (const std::string& role : peak_roles) out += head("peak " + role, "MiB");
  out += "</tr></thead><tbody>";
  const size_t columns = 5 + (drops ? 1 : 0) + cpu_roles.size() + peak_roles.size();
  for (const int64_t workers : link.workers) {
    out += group_row(workers, columns);
    for (const Cell* cell : link.of(workers)) {
      out += "<tr>" + name_cell(*cell) +
             (cell->good.empty() ? kNothing : cell_of(std::to_string(cell->servers), "")) +
             staleness_cell(*cell) + spread_cell(cell->pushed_mb, 3) +
             spread_cell(cell->pulled_mb, 3);
      if (drops) out += cell_of(fixed(static_cast<double>(cell->dropped), 0), "");
      for (const std::string& role : cpu_roles) out += role_cell(cell->cpu, role, cpu);
      for (const std::string& role : peak_roles) out += role_cell(cell->peak, role, 0);
      out += "</tr>\n";
    }
  }
  return out + "</tbody>" + close_table();
}

}  // namespace pushpull
