#include "cli/status/top_view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <span>
#include <utility>

#include "cli/status/status_table.h"
#include "common/base/text.h"

namespace pushpull {

namespace {

using nlohmann::ordered_json;

constexpr size_t kMostLeft = 3;     // lines about members that left
constexpr size_t kLinesBeside = 2;  // of the table: its header, and a line about hidden members

struct TopColumn {
  const char* title;
  bool right;  // aligned
  int weight;  // the lightest column is left out first; -1: never
  std::function<std::string(const ordered_json&)> cell;
  bool optional = false;  // left out if its cells are empty
};

// Returns "512M" or "1.5G".
std::string memory_text(const ordered_json& mib) {
  if (!mib.is_number()) return "-";
  const double value = mib.get<double>();
  std::array<char, 32> text{};
  constexpr double kMibOfGib = 1024.0;
  if (value < kMibOfGib) {
    std::snprintf(text.data(), text.size(), "%.0fM", value);
  } else {
    std::snprintf(text.data(), text.size(), "%.1fG", value / kMibOfGib);
  }
  return text.data();
}

// A coordinator of an earlier release sends no figures of memory now, nor of cores.
ordered_json field_of(const ordered_json& member, const char* field) {
  return member.value(field, ordered_json(nullptr));
}

std::string memory_cell(const ordered_json& member) {
  const ordered_json limit = field_of(member, "memory_limit_mib");
  return memory_text(field_of(member, "rss_mib")) +
         (limit.is_null() ? "" : "/" + memory_text(limit));
}

// Returns what is in use of the devices, "3.1G/140G", or "" without one.
std::string device_memory_cell(const ordered_json& member) {
  const ordered_json all = field_of(member, "device_mib");
  return all.is_null() ? ""
                       : memory_text(field_of(member, "device_used_mib")) + "/" + memory_text(all);
}

// Returns bytes per second in decimal units: "950", "12.3k", "118.0M".
std::string bytes_rate_text(const ordered_json& bytes) {
  if (!bytes.is_number()) return "-";
  double value = bytes.get<double>();
  const char* unit = "";
  constexpr double kStep = 1000.0;
  for (const char* next : {"k", "M", "G"}) {
    if (value < kStep) break;
    value /= kStep;
    unit = next;
  }
  return number_text(value, *unit == '\0' ? 0 : 1) + unit;
}

std::string network_cell(const ordered_json& member) {
  return bytes_rate_text(field_of(member, "sent_bytes_per_second")) + "/" +
         bytes_rate_text(field_of(member, "received_bytes_per_second"));
}

std::string cores_cell(const ordered_json& member) {
  const ordered_json given = field_of(member, "cores");
  const bool whole = given.is_number() && given.get<double>() == std::floor(given.get<double>());
  return number_text(field_of(member, "cores_used"), 2) + "/" + number_text(given, whole ? 0 : 1);
}

bool is_worker(const ordered_json& member) { return member.at("role") == "worker"; }

const std::vector<TopColumn>& top_columns() {
  static const std::vector<TopColumn> columns = {
      {"member", false, -1, member_name},
      {"group/stage", false, 7, member_place, true},
      {"host", false, 6, [](const ordered_json& m) { return text_of(m.at("host")); }},
      {"pid", true, 3,
       [](const ordered_json& m) { return std::to_string(m.at("pid").get<int64_t>()); }},
      {"step", true, -1,
       [](const ordered_json& m) { return std::to_string(m.at("step").get<int64_t>()); }},
      {"samples", true, 0,
       [](const ordered_json& m) {
         return is_worker(m) ? std::to_string(m.at("samples").get<int64_t>()) : "";
       }},
      {"/s", true, 5,
       [](const ordered_json& m) {
         return is_worker(m) ? number_text(m.at("samples_per_second"), 0) : "";
       }},
      {"staleness", true, 4, member_staleness},
      {"memory", true, -1, memory_cell},
      {"cores", true, -1, cores_cell},
      {"B/s out/in", true, 2, network_cell},
      {"GPU memory", true, 8, device_memory_cell, true},
      {"heard", true, -1,
       [](const ordered_json& m) { return number_text(m.at("heard_seconds"), 1) + "s"; }},
      {"device", false, 1, [](const ordered_json& m) { return text_of(m.at("device")); }}};
  return columns;
}

size_t columns_of(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

// A column that is laid out: its cells, the title first.
struct LaidColumn {
  const TopColumn* column;
  std::vector<std::string> cells;
  size_t width = 0;
};

size_t total_width(const std::vector<LaidColumn>& columns) {
  size_t width = 0;
  for (const LaidColumn& one : columns) width += one.width + (width == 0 ? 0 : 2);
  return width;
}

std::vector<LaidColumn> lay_out(const ordered_json& members, size_t columns) {
  std::vector<LaidColumn> laid;
  for (const TopColumn& column : top_columns()) {
    LaidColumn one{&column, {column.title}, columns_of(column.title)};
    for (const ordered_json& member : members) {
      one.cells.push_back(column.cell(member));
      one.width = std::max(one.width, columns_of(one.cells.back()));
    }
    const bool empty = std::ranges::all_of(std::span(one.cells).subspan(1), &std::string::empty);
    if (!column.optional || !empty) laid.push_back(std::move(one));
  }
  while (total_width(laid) > columns) {
    auto lightest = laid.end();
    for (auto it = laid.begin(); it != laid.end(); ++it) {
      if (it->column->weight < 0) continue;
      if (lightest == laid.end() || it->column->weight < lightest->column->weight) lightest = it;
    }
    if (lightest == laid.end()) break;
    laid.erase(lightest);
  }
  return laid;
}

std::string table_line(const std::vector<LaidColumn>& laid, size_t row) {
  std::string line;
  for (const LaidColumn& one : laid) {
    const std::string& cell = one.cells[row];
    const std::string space(one.width - columns_of(cell), ' ');
    line += (line.empty() ? "" : "  ") + (one.column->right ? space + cell : cell + space);
  }
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

std::vector<std::string> job_header(const ordered_json& d) {
  std::string progress = text_of(d.at("phase"));
  std::string time = "up " + clock_of(d.at("up_seconds"));
  if (d.contains("step")) {
    progress += "  step " + std::to_string(d.at("step").get<int64_t>()) + " of " +
                std::to_string(d.at("steps").get<int64_t>()) + ", epoch " +
                std::to_string(d.at("epoch").get<int64_t>()) + "  loss " +
                number_text(d.at("loss"), 4) + "  " + number_text(d.at("samples_per_second"), 0) +
                " samples/s";
    time = "time " + clock_of(d.at("seconds")) + ", ETA " + clock_of(d.at("eta_seconds"));
  }
  std::vector<std::string> lines = {
      progress, time + "  " + text_of(d.at("strategy")) + ", " +
                    plural(d.at("workers").get<int64_t>(), "worker") + ", " +
                    plural(d.at("servers").get<int64_t>(), "server") + ", run " +
                    text_of(d.at("run")) + "  " + text_of(d.at("host")) + ":" +
                    printable(d.at("out").get<std::string>(), kMaxPathBytes)};
  for (const char* field : {"waiting_for", "failure"}) {
    const std::string text = d.at(field).get<std::string>();
    if (!text.empty()) lines.push_back(printable(text, kMaxPathBytes));
  }
  return lines;
}

std::vector<std::string> left_lines(const ordered_json& d) {
  const ordered_json& left = d.at("left");
  std::vector<std::string> lines;
  for (size_t i = left.size() - std::min(left.size(), kMostLeft); i < left.size(); ++i) {
    const ordered_json& one = left[i];
    const double ago = d.at("up_seconds").get<double>() - one.at("at_seconds").get<double>();
    lines.push_back("left: " + member_name(one) + " (" + text_of(one.at("host")) + ", pid " +
                    std::to_string(one.at("pid").get<int64_t>()) + ") " + clock_text(ago) +
                    " ago: " + printable(one.at("reason").get<std::string>(), kMaxPathBytes));
  }
  return lines;
}

// Returns the table in at most `rows` lines: each member's line, and below it what users should know about it.
std::vector<std::string> table_lines(const ordered_json& members, size_t first, size_t rows,
                                     size_t columns) {
  const std::vector<LaidColumn> laid = lay_out(members, columns);
  std::vector<std::string> lines = {table_line(laid, 0)};
  first = members.empty() ? 0 : std::min(first, members.size() - 1);
  size_t next = first;
  for (; next < members.size(); ++next) {
    std::vector<std::string> more = {table_line(laid, next + 1)};
    const std::string remark = member_remark(members[next]);
    if (!remark.empty()) more.push_back("  ^ " + remark);
    const size_t reserved = next + 1 < members.size() || first > 0 ? 1 : 0;
    if (lines.size() + more.size() + reserved > rows) break;
    std::ranges::move(more, std::back_inserter(lines));
  }
  const size_t hidden = first + members.size() - next;
  if (hidden > 0 && lines.size() < rows) {
    lines.push_back("... " + plural(static_cast<int64_t>(hidden), "more member") +
                    " (arrow keys, j and k)");
  }
  return lines;
}

}  // namespace

std::string clip_text(const std::string& text, size_t columns) {
  if (columns_of(text) <= columns) return text;
  std::string out;
  size_t width = 0;
  for (const char c : text) {
    const bool begins = (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    if (begins && ++width > columns - std::min<size_t>(columns, 1)) break;
    out += c;
  }
  return columns > 0 ? out + ">" : out;
}

std::vector<std::string> top_lines(const TopState& state, size_t rows, size_t columns) {
  std::string title = "pushpull top  " + printable(state.address, kMaxPathBytes);
  const size_t used = columns_of(title) + columns_of(state.clock);
  if (used < columns) title += std::string(columns - used, ' ') + state.clock;
  std::vector<std::string> lines = {title};
  if (!state.trouble.empty()) lines.push_back("! " + printable(state.trouble, kMaxPathBytes));
  if (state.document) {
    std::ranges::move(job_header(*state.document), std::back_inserter(lines));
    lines.emplace_back();
    const std::vector<std::string> left = left_lines(*state.document);
    const size_t needed = lines.size() + left.size();
    const size_t room = std::max(rows > needed ? rows - needed : 0, kLinesBeside + 1);
    std::ranges::move(table_lines(state.document->at("members"), state.first_member, room, columns),
                      std::back_inserter(lines));
    std::ranges::copy(left, std::back_inserter(lines));
  }
  lines.resize(std::min(lines.size(), rows));
  for (std::string& line : lines) line = clip_text(line, columns);
  return lines;
}

namespace {

using nlohmann::ordered_json;

constexpr int64_t kSilentMs = 3'000;  // without an answer, before users are told
constexpr int64_t kGiveUpMs = 5'000;
constexpr int64_t kNewsMs = 30'000;  // how long users can read it

// Returns what has changed between two answers, or "".
std::string change_between(const ordered_json& before, const ordered_json& now) {
  const auto coordinator = [](const ordered_json& d) {
    return d.value("host", "") + ", pid " + std::to_string(d.value("pid", int64_t{0}));
  };
  if (coordinator(before) != coordinator(now)) {
    return "the coordinator has been restarted: now " + coordinator(now) + ", before " +
           coordinator(before);
  }
  if (before.value("run", "") == now.value("run", "")) return "";
  return "a server was lost: the job has gone back to a checkpoint, as run " + now.value("run", "");
}

bool is_over(const std::optional<ordered_json>& document) {
  if (!document) return false;
  const std::string phase = document->value("phase", "");
  return phase == "finishing" || phase == "finished" || phase == "failed";
}

}  // namespace

bool TopJob::ask(int64_t now_ms) {
  if (asked_ms_ || now_ms < next_ms_) return false;
  asked_ms_ = now_ms;
  if (silent_since_ms_ < 0) silent_since_ms_ = now_ms;
  return true;
}

bool TopJob::give_up(int64_t now_ms) {
  if (!asked_ms_ || now_ms - *asked_ms_ < kGiveUpMs) return false;
  asked_ms_.reset();
  next_ms_ = now_ms;
  return true;
}

void TopJob::answered(int64_t now_ms, ordered_json document) {
  asked_ms_.reset();
  next_ms_ = now_ms + interval_ms_;
  silent_since_ms_ = now_ms;
  why_.clear();
  if (document_) {
    if (const std::string news = change_between(*document_, document); !news.empty()) {
      news_ = news;
      news_ms_ = now_ms;
    }
  }
  document_ = std::move(document);
}

void TopJob::failed(int64_t now_ms, const std::string& why) {
  asked_ms_.reset();
  next_ms_ = now_ms + interval_ms_;
  why_ = why;
}

std::string TopJob::trouble(int64_t now_ms) const {
  if (!why_.empty()) return why_ + "; asking again";
  const int64_t silent_ms = silent_since_ms_ < 0 ? 0 : now_ms - silent_since_ms_;
  if (silent_ms - (document_ ? interval_ms_ : 0) >= kSilentMs) {
    return "no answer for " + clock_text(static_cast<double>(silent_ms) / 1000.0) +
           (is_over(document_) ? ": the job has ended"
            : document_        ? ": the coordinator is gone or restarting"
                               : ": no coordinator there yet") +
           "; asking again";
  }
  return !news_.empty() && now_ms - news_ms_ < kNewsMs ? news_ : "";
}

}  // namespace pushpull
