#include "cli/bench/bench_result.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/io/json.h"

namespace pushpull {
namespace {

using nlohmann::ordered_json;

// Formats three significant digits without an exponent.
std::string figure(std::optional<double> value) {
  if (!value) return "-";
  const int digits = *value >= 100.0 ? 0 : *value >= 10.0 ? 1 : 2;
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, *value);
  return text.data();
}

std::optional<double> push_gb_s(int64_t bytes, const std::optional<OneWay>& way) {
  if (!way) return std::nullopt;
  return gb_s(bytes, way->push.p50);
}

std::optional<double> pull_gb_s(int64_t bytes, const std::optional<OneWay>& way) {
  if (!way) return std::nullopt;
  return gb_s(bytes, way->pull.p50);
}

std::optional<double> us(const std::optional<OneWay>& way, Percentiles OneWay::*which) {
  if (!way) return std::nullopt;
  return (*way.*which).p50;
}

struct ExchangeFigures {
  std::optional<double> p50;
  std::optional<double> p99;
  std::optional<double> rate;
};

ExchangeFigures exchange_figures(const BenchRow& row) {
  if (!row.exchange) return {};
  return {row.exchange->p50, row.exchange->p99, gb_s(row.bytes, row.exchange->p50)};
}

ordered_json row_json(const BenchRow& row) {
  const auto [p50, p99, rate] = exchange_figures(row);
  return {{"bytes", row.bytes},
          {"transport", row.transport},
          {"workers", row.workers},
          {"servers", row.servers},
          {"steps", row.steps},
          {"exchange_us_p50", json_number(p50)},
          {"exchange_us_p99", json_number(p99)},
          {"exchange_gb_s", json_number(rate)},
          {"floor_us_p50", json_number(row.floor_us)},
          {"ratio", json_number(row.ratio())},
          {"push_us_p50", json_number(us(row.alone, &OneWay::push))},
          {"pull_us_p50", json_number(us(row.alone, &OneWay::pull))},
          {"push_gb_s", json_number(push_gb_s(row.bytes, row.alone))},
          {"pull_gb_s", json_number(pull_gb_s(row.bytes, row.alone))},
          {"floor_push_us_p50", json_number(us(row.alone_floor, &OneWay::push))},
          {"floor_pull_us_p50", json_number(us(row.alone_floor, &OneWay::pull))},
          {"floor_push_gb_s", json_number(push_gb_s(row.bytes, row.alone_floor))},
          {"floor_pull_gb_s", json_number(pull_gb_s(row.bytes, row.alone_floor))},
          {"note", row.note.empty() ? ordered_json(nullptr) : ordered_json(row.note)}};
}

std::string line_of(const std::array<std::string, 11>& cells) {
  constexpr std::array<int, 11> kWidths = {11, 10, 10, 10, 7, 10, 7, 9, 9, 9, 9};
  std::string text;
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto width = static_cast<size_t>(kWidths[i]);
    text += std::string(width - std::min(width, cells[i].size()), ' ') + cells[i];
  }
  return text + "\n";
}

}  // namespace

std::optional<double> BenchRow::ratio() const {
  if (!exchange || !floor_us || *floor_us <= 0.0) return std::nullopt;
  return exchange->p50 / *floor_us;
}

double gb_s(int64_t bytes, double us) {
  constexpr double kPerSecond = 1e-3;  // bytes per microsecond are megabytes per second
  return us > 0.0 ? static_cast<double>(bytes) / us * kPerSecond : 0.0;
}

std::string bench_head() {
  return line_of({"", "", "exchange", "", "", "floor", "", "push", "(floor)", "pull", "(floor)"}) +
         line_of({"bytes", "transport", "p50 us", "p99 us", "GB/s", "us", "ratio", "GB/s", "GB/s",
                  "GB/s", "GB/s"});
}

std::string bench_line(const BenchRow& row) {
  const auto [p50, p99, rate] = exchange_figures(row);
  std::string text = line_of(
      {std::to_string(row.bytes), row.transport, figure(p50), figure(p99), figure(rate),
       figure(row.floor_us), figure(row.ratio()), figure(push_gb_s(row.bytes, row.alone)),
       figure(push_gb_s(row.bytes, row.alone_floor)), figure(pull_gb_s(row.bytes, row.alone)),
       figure(pull_gb_s(row.bytes, row.alone_floor))});
  if (!row.note.empty()) text += "            " + row.note + "\n";
  return text;
}

std::string bench_json(const BenchResult& result) {
  ordered_json rows = ordered_json::array();
  for (const BenchRow& row : result.rows) rows.push_back(row_json(row));
  const ordered_json json = {{"command", result.command},
                             {"version", result.version},
                             {"commit", result.commit},
                             {"machine", result.machine},
                             {"began", result.began},
                             {"optimizer", result.optimizer},
                             {"rows", rows}};
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace pushpull
