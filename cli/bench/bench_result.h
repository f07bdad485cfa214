// The measurements of `pushpull bench`: one row per size and transport. Plain data; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/link_floor.h"
#include "cli/bench/percentiles.h"

namespace pushpull {

struct BenchRow {
  int64_t bytes = 0;
  std::string transport;  // as given on the command line
  int64_t workers = 0;
  int64_t servers = 0;
  int64_t steps = 0;                    // measured steps
  std::optional<Percentiles> exchange;  // empty if the exchange failed; `note` says why
  std::optional<double> floor_us;       // median for the same bytes without pushpull
  std::optional<OneWay> alone;          // sockets only
  std::optional<OneWay> alone_floor;
  std::string note;  // remark printed with the figures; empty = none

  // Returns exchange / floor, or empty if either is missing.
  std::optional<double> ratio() const;
};

struct BenchResult {
  std::string command;
  std::string version;
  std::string commit;
  std::string machine;
  std::string began;  // UTC
  std::string optimizer;
  std::vector<BenchRow> rows;
};

// Returns gigabytes (1e9 bytes) per second.
double gb_s(int64_t bytes, double us);

// The rows as a table for users. bench_head returns the heading alone, so that rows can be printed
// one at a time.
std::string bench_head();
std::string bench_line(const BenchRow& row);

// The whole result as JSON; docs/bench.md names every field.
std::string bench_json(const BenchResult& result);

}  // namespace pushpull
