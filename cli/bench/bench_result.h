// What `pushpull bench` has measured: one row for each size and transport. Plain data; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/floors/link_floor.h"
#include "cli/floors/percentiles.h"

namespace pushpull {

struct BenchRow {
  int64_t bytes = 0;
  std::string transport;  // that was asked for
  int64_t workers = 0;
  int64_t servers = 0;
  int64_t steps = 0;                    // that were measured
  std::optional<Percentiles> exchange;  // empty: it failed, see `note`
  std::optional<double> floor_us;       // median of the same bytes without us
  std::optional<OneWay> alone;          // sockets only
  std::optional<OneWay> alone_floor;
  std::string note;  // what must be said beside the figures; empty: nothing

  // Times the floor; empty where one of the two is missing.
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

// Gigabytes (1e9) in a second.
double gb_s(int64_t bytes, double us);

// The rows as a table for people, `head` its title lines alone, so that rows can be printed as they
// come.
std::string bench_head();
std::string bench_line(const BenchRow& row);

// The whole as JSON text; docs/bench.md names every field.
std::string bench_json(const BenchResult& result);

}  // namespace pushpull
