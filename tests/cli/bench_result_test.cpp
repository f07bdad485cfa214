#include "cli/bench/bench_result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

namespace pushpull {
namespace {

using testing::HasSubstr;

BenchRow row_over_tcp() {
  BenchRow row;
  row.bytes = 1'000'000;
  row.transport = "tcp";
  row.workers = 2;
  row.servers = 1;
  row.steps = 50;
  row.exchange = Percentiles{500.0, 900.0};
  row.floor_us = 400.0;
  row.alone = OneWay{{250.0, 300.0}, {200.0, 260.0}};
  row.alone_floor = OneWay{{240.0, 250.0}, {190.0, 200.0}};
  return row;
}

TEST(BenchResult, BytesInMicrosecondsAreGigabytesInSeconds) {
  EXPECT_DOUBLE_EQ(gb_s(1'000'000, 500.0), 2.0);
  EXPECT_EQ(gb_s(1'000'000, 0.0), 0.0);
}

TEST(BenchResult, ARatioNeedsBothOfItsSides) {
  BenchRow row = row_over_tcp();
  EXPECT_DOUBLE_EQ(row.ratio().value(), 1.25);
  row.floor_us.reset();
  EXPECT_EQ(row.ratio(), std::nullopt);
  row = row_over_tcp();
  row.exchange.reset();
  EXPECT_EQ(row.ratio(), std::nullopt);
}

TEST(BenchResult, ALineIsAlignedWithItsTitles) {
  const std::string head = bench_head();
  const std::string line = bench_line(row_over_tcp());
  const std::string titles = head.substr(head.find('\n') + 1);
  EXPECT_EQ(titles.size(), line.size());
  EXPECT_EQ(titles.find("ratio") + 5, line.find("1.25") + 4);
  for (const char* word : {"1000000", "tcp", "500", "900", "2.00", "400", "4.00", "5.00"}) {
    EXPECT_THAT(line, HasSubstr(word));
  }
}

TEST(BenchResult, MissingValuesAreADashAndNull) {
  BenchRow row = row_over_tcp();
  row.alone.reset();
  row.alone_floor.reset();
  row.floor_us.reset();
  row.note = "no floor";
  const std::string line = bench_line(row);
  EXPECT_EQ(std::count(line.begin(), line.end(), '-'), 6);
  EXPECT_THAT(line, HasSubstr("\n            no floor\n"));
  const auto json = nlohmann::json::parse(bench_json({"", "", "", "", "", "", {row}}));
  for (const char* field : {"floor_us_p50", "ratio", "push_gb_s", "pull_gb_s", "push_us_p50",
                            "floor_push_gb_s", "floor_pull_us_p50"}) {
    EXPECT_TRUE(json["rows"][0].at(field).is_null()) << field;
  }
  EXPECT_EQ(json["rows"][0]["note"], "no floor");
}

TEST(BenchResult, TheJsonHasAllMeasurements) {
  const auto json = nlohmann::json::parse(bench_json(
      {"pushpull bench", "1", "abc", "a machine", "2026", "momentum", {row_over_tcp()}}));
  EXPECT_EQ(json["command"], "pushpull bench");
  EXPECT_EQ(json["optimizer"], "momentum");
  const auto& row = json["rows"][0];
  EXPECT_EQ(row["bytes"], 1'000'000);
  EXPECT_EQ(row["transport"], "tcp");
  EXPECT_EQ(row["workers"], 2);
  EXPECT_EQ(row["exchange_us_p50"], 500.0);
  EXPECT_EQ(row["exchange_us_p99"], 900.0);
  EXPECT_EQ(row["floor_us_p50"], 400.0);
  EXPECT_EQ(row["ratio"], 1.25);
  EXPECT_EQ(row["push_gb_s"], 4.0);
  EXPECT_EQ(row["pull_gb_s"], 5.0);
  EXPECT_EQ(row["floor_push_us_p50"], 240.0);
  EXPECT_TRUE(row["note"].is_null());
}

}  // namespace
}  // namespace pushpull
