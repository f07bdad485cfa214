#include "cli/status/status_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace pushpull {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

ordered_json some_member(const std::string& role, int rank, int64_t pid) {
  return {{"role", role},       {"rank", rank},          {"pid", pid},
          {"host", "node1"},    {"state", "active"},     {"step", 118},
          {"samples", 3776},    {"clock", 118},          {"samples_per_second", 512.4},
          {"straggler", false}, {"waits_for", ""},       {"staleness_mean", 0.0},
          {"staleness_max", 0}, {"heard_seconds", 0.25}, {"device", "cpu"},
          {"address", ""}};
}

ordered_json some_status() {
  return {
      {"version", "0.1.0"},
      {"run", "0123456789ab"},
      {"phase", "training"},
      {"strategy", "sync"},
      {"servers", 1},
      {"workers", 2},
      {"host", "node1"},
      {"pid", 7},
      {"out", "/data/out"},
      {"up_seconds", 100.0},
      {"waiting_for", ""},
      {"failure", ""},
      {"step", 118},
      {"steps", 330},
      {"epoch", 5},
      {"samples", 7552},
      {"samples_per_second", 1024.0},
      {"loss", 0.5},
      {"seconds", 12.0},
      {"eta_seconds", 61.0},
      {"members",
       {some_member("server", 0, 7), some_member("worker", 0, 8), some_member("worker", 1, 12345)}},
      {"left", ordered_json::array()},
      {"left_before", 0}};
}

std::vector<std::string> printed_lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

TEST(StatusTable, ShowsProgressAndMembers) {
  const std::string text = status_table(some_status());
  for (const char* part : {"sync, 2 workers, 1 server", "training", "118 of 330, epoch 5", "0.5000",
                           "1024 samples/s", "ETA 1:01", "node1:/data/out", "12345"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("STRAGGLER")));
  EXPECT_THAT(text, Not(HasSubstr("left or lost")));
}

TEST(StatusTable, NumbersAreAligned) {
  std::set<size_t> ends;
  for (const std::string& line : printed_lines(status_table(some_status()))) {
    const size_t at = line.find(" 118  ");
    if (at != std::string::npos && line.find("of") == std::string::npos) ends.insert(at);
  }
  EXPECT_EQ(ends.size(), 1U);
}

TEST(StatusTable, ShowsGroupsAndStagesIfThereAreAny) {
  ordered_json d = some_status();
  EXPECT_THAT(status_table(d), Not(HasSubstr("group/stage")));
  d["members"][1]["group"] = nullptr;
  d["members"][1]["stage"] = nullptr;
  EXPECT_THAT(status_table(d), Not(HasSubstr("group/stage")));
  d["members"][1]["stage"] = 1;
  d["members"][2]["group"] = 12;
  d["members"][2]["stage"] = 0;
  const std::string text = status_table(d);
  for (const char* part : {"member    group/stage  host", "worker 0  -/1 ", "worker 1  12/0 "}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(StatusTable, MarksStragglersSilentAndWaitingMembers) {
  ordered_json d = some_status();
  d["members"][2]["straggler"] = true;
  d["members"][1]["waits_for"] = "weights of step 119 of server 0";
  d["members"][1]["samples_per_second"] = 0.0;
  d["members"][2]["waits_for"] = "weights of step 120 of server 0";
  d["members"][0]["heard_seconds"] = 7.4;
  d["members"].push_back(some_member("worker", 0, 99));
  d["members"][3]["rank"] = nullptr;
  d["members"][3]["state"] = "spare";
  int found = 0;
  for (const std::string& line : printed_lines(status_table(d))) {
    const auto has = [&](const char* part) { return line.find(part) != std::string::npos; };
    found += has("worker 1 ") && has("STRAGGLER") ? 1 : 0;
    found += has("worker 0 ") && has("waits for weights of step 119 of server 0") ? 1 : 0;
    found += has("server 0 ") && has("silent for 7 s") ? 1 : 0;
    found += has(" 99 ") && has("spare") ? 1 : 0;
  }
  EXPECT_EQ(found, 4);
  EXPECT_THAT(status_table(d), Not(HasSubstr("step 120")))
      << "a worker that computes also waits at times";
}

TEST(StatusTable, ShowsMissingMembersAndThoseThatLeft) {
  ordered_json d = some_status();
  d["phase"] = "gathering";
  d["waiting_for"] = "waiting for members: 1 of 1 server, 1 of 2 workers";
  for (const char* field : {"step", "steps", "epoch", "samples", "loss", "seconds"}) d.erase(field);
  d["left_before"] = 3;
  d["left"].push_back({{"role", "worker"},
                       {"rank", 1},
                       {"pid", 55},
                       {"host", "node2"},
                       {"step", 60},
                       {"samples", 1},
                       {"reason", "no heartbeat for 5.2 s"},
                       {"at_seconds", 40.0}});
  const std::string text = status_table(d);
  EXPECT_THAT(text, HasSubstr("1 of 2 workers"));
  EXPECT_THAT(text, HasSubstr("4 members left or lost:"));
  EXPECT_THAT(text,
              HasSubstr("worker 1 (node2, pid 55) 1:00 ago, 1 sample: no heartbeat for 5.2 s"));
}

TEST(StatusTable, PrintsNoControlCharactersAndRefusesAnInvalidStatus) {
  ordered_json d = some_status();
  d["members"][0]["host"] = "\x1b[2J";
  EXPECT_THAT(status_table(d), Not(HasSubstr("\x1b")));
  d["members"][0]["pid"] = "seven";
  EXPECT_THROW(status_table(d), nlohmann::json::exception);
  EXPECT_THROW(status_table(ordered_json::object()), nlohmann::json::exception);
}

}  // namespace
}  // namespace pushpull
