#include "cli/status/status_table.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "common/base/text.h"

namespace pushpull {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxCell = 60;
constexpr double kSilentSeconds = 3.0;

}  // namespace

std::string number_text(const ordered_json& value, int digits) {
  if (!value.is_number()) return "-";
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value.get<double>());
  return text.data();
}

std::string clock_of(const ordered_json& seconds) {
  return seconds.is_number() ? clock_text(seconds.get<double>()) : "?";
}

std::string text_of(const ordered_json& value) {
  return printable(value.get<std::string>(), kMaxCell);
}

std::string member_name(const ordered_json& member) {
  const ordered_json& rank = member.at("rank");
  return text_of(member.at("role")) +
         (rank.is_null() ? "" : " " + std::to_string(rank.get<int64_t>()));
}

// A coordinator of an earlier release sends neither.
std::string member_place(const ordered_json& member) {
  const ordered_json stage = member.value("stage", ordered_json(nullptr));
  if (!stage.is_number()) return "";
  return number_text(member.at("group"), 0) + "/" + number_text(stage, 0);
}

std::string member_remark(const ordered_json& member) {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  if (member.value("straggler", false)) add("STRAGGLER: the others wait for it");
  const double heard = member.at("heard_seconds").get<double>();
  if (heard >= kSilentSeconds) add("silent for " + number_text(heard, 0) + " s");
  const std::string state = text_of(member.at("state"));
  if (state != "active") add(state);
  const std::string waits = member.value("waits_for", "");
  // A computing member waits now and then, too.
  if (!waits.empty() && member.value("samples_per_second", 0.0) == 0.0)
    add("waits for " + printable(waits, kMaxCell));
  return out;
}

std::string member_staleness(const ordered_json& member) {
  return number_text(member.at("staleness_mean"), 1) + " (" +
         std::to_string(member.at("staleness_max").get<int64_t>()) + ")";
}

namespace {

using nlohmann::ordered_json;
using Cells = std::vector<std::string>;

constexpr size_t kMaxLeft = 10;  // lines about members that left

// Aligns numbers right, words left.
std::string align_cells(const std::vector<Cells>& rows, const std::vector<bool>& right) {
  std::vector<size_t> widths(right.size());
  for (const Cells& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const Cells& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      line += " " + (right[i] ? space + row[i] : row[i] + space) + " ";
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string member_table(const ordered_json& members) {
  std::vector<Cells> rows = {{"member", "group/stage", "host", "pid", "step", "samples", "/s",
                              "staleness", "heard", "device", ""}};
  for (const ordered_json& member : members) {
    const bool worker = member.at("role") == "worker";
    rows.push_back({member_name(member), member_place(member), text_of(member.at("host")),
                    std::to_string(member.at("pid").get<int64_t>()),
                    std::to_string(member.at("step").get<int64_t>()),
                    worker ? std::to_string(member.at("samples").get<int64_t>()) : "",
                    worker ? number_text(member.at("samples_per_second"), 0) : "",
                    member_staleness(member), number_text(member.at("heard_seconds"), 1) + " s",
                    text_of(member.at("device")), member_remark(member)});
  }
  std::vector<bool> right = {false, false, false, true, true, true, true, true, true, false, false};
  if (std::ranges::all_of(members, [](const auto& m) { return member_place(m).empty(); })) {
    for (Cells& row : rows) row.erase(row.begin() + 1);
    right.erase(right.begin() + 1);
  }
  return align_cells(rows, right);
}

std::string left_table(const ordered_json& document) {
  const ordered_json& left = document.at("left");
  const auto count = static_cast<int64_t>(left.size()) + document.at("left_before").get<int64_t>();
  if (count == 0) return "";
  std::string out = plural(count, "member") + " left or lost:\n";
  const size_t first = left.size() - std::min(left.size(), kMaxLeft);
  for (size_t i = first; i < left.size(); ++i) {
    const ordered_json& one = left[i];
    const double ago = document.at("up_seconds").get<double>() - one.at("at_seconds").get<double>();
    out += "  " + member_name(one) + " (" + text_of(one.at("host")) + ", pid " +
           std::to_string(one.at("pid").get<int64_t>()) + ") " + clock_text(ago) + " ago, " +
           plural(one.at("samples").get<int64_t>(), "sample") + ": " +
           printable(one.at("reason").get<std::string>(), kMaxPathBytes) + "\n";
  }
  return out;
}

std::string job_lines(const ordered_json& d) {
  std::string out = "job         " + text_of(d.at("strategy")) + ", " +
                    plural(d.at("workers").get<int64_t>(), "worker") + ", " +
                    plural(d.at("servers").get<int64_t>(), "server") + ", run " +
                    text_of(d.at("run")) + "\n";
  out += "phase       " + text_of(d.at("phase")) + "\n";
  const std::string waiting = d.at("waiting_for").get<std::string>();
  if (!waiting.empty()) out += "            " + printable(waiting, kMaxPathBytes) + "\n";
  const std::string failure = d.at("failure").get<std::string>();
  if (!failure.empty()) out += "failure     " + printable(failure, kMaxPathBytes) + "\n";
  if (d.contains("step")) {
    out += "step        " + std::to_string(d.at("step").get<int64_t>()) + " of " +
           std::to_string(d.at("steps").get<int64_t>()) + ", epoch " +
           std::to_string(d.at("epoch").get<int64_t>()) + "\n";
    out += "loss        " + number_text(d.at("loss"), 4) + "\n";
    out += "rate        " + number_text(d.at("samples_per_second"), 0) + " samples/s\n";
    out += "time        " + clock_of(d.at("seconds")) + ", ETA " + clock_of(d.at("eta_seconds")) +
           "\n";
  }
  out += "output      " + text_of(d.at("host")) + ":" +
         printable(d.at("out").get<std::string>(), kMaxPathBytes) + "\n";
  return out;
}

}  // namespace

std::string status_table(const ordered_json& document) {
  return job_lines(document) + member_table(document.at("members")) + left_table(document);
}

}  // namespace pushpull
