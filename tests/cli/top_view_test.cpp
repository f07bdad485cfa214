#include "cli/status/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace pushpull {
namespace {

using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

ordered_json member_of(const std::string& role, int rank) {
  return {{"role", role},
          {"rank", rank},
          {"pid", 4711 + rank},
          {"host", "node1"},
          {"state", "active"},
          {"step", 118},
          {"samples", 3776},
          {"samples_per_second", 512.4},
          {"straggler", false},
          {"waits_for", ""},
          {"staleness_mean", 0.5},
          {"staleness_max", 2},
          {"heard_seconds", 0.25},
          {"rss_mib", 512.0},
          {"memory_limit_mib", nullptr},
          {"cores_used", 0.983},
          {"cores", 2.0},
          {"sent_bytes_per_second", 12345.0},
          {"received_bytes_per_second", 118.0e6},
          {"device_used_mib", nullptr},
          {"device_mib", nullptr},
          {"device", "cpu"}};
}

ordered_json document_of(int workers) {
  ordered_json members = {member_of("server", 0)};
  for (int rank = 0; rank < workers; ++rank) members.push_back(member_of("worker", rank));
  return {{"phase", "training"},
          {"strategy", "sync"},
          {"servers", 1},
          {"workers", workers},
          {"run", "0123456789ab"},
          {"host", "node1"},
          {"out", "/data/out"},
          {"up_seconds", 100.0},
          {"waiting_for", ""},
          {"failure", ""},
          {"step", 118},
          {"steps", 330},
          {"epoch", 5},
          {"samples_per_second", 1024.0},
          {"loss", 0.5},
          {"seconds", 12.0},
          {"eta_seconds", 61.0},
          {"members", members},
          {"left", ordered_json::array()}};
}

TopState state_of(ordered_json document) {
  return {"tcp://127.0.0.1:5555", std::move(document), "", "12:30:00 UTC", 0};
}

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

TEST(TopView, ShowsTheJobAndEachMemberInEightyColumns) {
  const auto lines = top_lines(state_of(document_of(2)), 24, 80);
  EXPECT_THAT(lines, Each(SizeIs(::testing::Le(80))));
  EXPECT_EQ(lines[0].size(), 80U);
  EXPECT_THAT(lines[0], AllOf(StartsWith("pushpull top  tcp://127.0.0.1:5555"),
                              ::testing::EndsWith("12:30:00 UTC")));
  EXPECT_EQ(lines[1], "training  step 118 of 330, epoch 5  loss 0.5000  1024 samples/s");
  EXPECT_THAT(lines[2], StartsWith("time 0:12, ETA 1:01  sync, 2 workers, 1 server, run 0123"));
  EXPECT_THAT(lines[4], AllOf(HasSubstr("memory"), HasSubstr("cores"), HasSubstr("heard")));
  EXPECT_THAT(lines[6], AllOf(StartsWith("worker 0"), HasSubstr("512M"), HasSubstr("0.98/2"),
                              HasSubstr("0.2s"), HasSubstr("118")));
}

TEST(TopView, NarrowTerminalsLoseTheLeastImportantColumns) {
  const TopState state = state_of(document_of(2));
  EXPECT_THAT(joined(top_lines(state, 24, 200)),
              AllOf(HasSubstr("samples  "), HasSubstr("device"), HasSubstr("pid")));
  const std::string narrow = joined(top_lines(state, 24, 44));
  EXPECT_THAT(narrow, AllOf(HasSubstr("member"), HasSubstr("step"), HasSubstr("memory"),
                            HasSubstr("cores"), Not(HasSubstr("device")), Not(HasSubstr("pid"))));
  for (size_t columns = 1; columns < 120; ++columns) {
    for (const std::string& line : top_lines(state, 24, columns)) EXPECT_LE(line.size(), columns);
  }
}

TEST(TopView, GroupsAndStagesHaveAColumnIfThereAreAny) {
  TopState state = state_of(document_of(2));
  EXPECT_THAT(top_lines(state, 24, 120), Not(Contains(HasSubstr("group/stage"))));
  (*state.document)["members"][2]["group"] = 3;
  (*state.document)["members"][2]["stage"] = 1;
  EXPECT_THAT(top_lines(state, 24, 80),
              AllOf(Contains(HasSubstr("group/stage")), Contains(HasSubstr("worker 1  3/1"))));
}

TEST(TopView, TheNetworkHasAColumnAndMemoryOfGpusIfThereAreAny) {
  TopState state = state_of(document_of(2));
  EXPECT_THAT(top_lines(state, 24, 120),
              AllOf(Contains(HasSubstr("B/s out/in")), Contains(HasSubstr("12.3k/118.0M")),
                    Not(Contains(HasSubstr("GPU memory")))));
  (*state.document)["members"][2]["device_used_mib"] = 3.0 * 1024;
  (*state.document)["members"][2]["device_mib"] = 140.0 * 1024;
  (*state.document)["members"][2].erase("sent_bytes_per_second");
  EXPECT_THAT(top_lines(state, 24, 120),
              AllOf(Contains(HasSubstr("GPU memory")), Contains(HasSubstr("3.0G/140.0G")),
                    Contains(HasSubstr("-/118.0M"))));
}

TEST(TopView, NeverExceedsTheRows) {
  TopState state = state_of(document_of(100));
  (*state.document)["left"] = {{{"role", "worker"},
                                {"rank", 7},
                                {"pid", 9},
                                {"host", "n"},
                                {"reason", "its connection closed"},
                                {"at_seconds", 40.0}}};
  for (size_t rows = 1; rows < 130; ++rows) {
    EXPECT_LE(top_lines(state, rows, 80).size(), rows) << rows;
  }
  const auto lines = top_lines(state, 24, 80);
  EXPECT_THAT(lines, Contains(HasSubstr("more members (arrow keys, j and k)")));
  EXPECT_THAT(lines.back(), StartsWith("left: worker 7 (n, pid 9) 1:00 ago: its connection"));
}

TEST(TopView, ScrollsToEachMember) {
  TopState state = state_of(document_of(100));
  state.first_member = 60;
  EXPECT_THAT(joined(top_lines(state, 24, 80)),
              AllOf(HasSubstr("worker 59 "), Not(HasSubstr("worker 10 "))));
  state.first_member = 5000;
  EXPECT_THAT(joined(top_lines(state, 24, 80)), HasSubstr("worker 99"));
}

TEST(TopView, ARemarkStandsBelowItsMember) {
  ordered_json document = document_of(2);
  document["members"][1]["straggler"] = true;
  const auto lines = top_lines(state_of(document), 24, 80);
  const auto found = std::ranges::find_if(
      lines, [](const std::string& line) { return line.starts_with("  ^ STRAGGLER"); });
  ASSERT_NE(found, lines.end());
  EXPECT_THAT(*(found - 1), StartsWith("worker 0"));
}

TEST(TopView, LimitsAndMissingFiguresHaveTheirText) {
  ordered_json document = document_of(1);
  document["members"][0]["memory_limit_mib"] = 16384.0;
  document["members"][0]["cores"] = 1.5;
  document["members"][0]["cores_used"] = nullptr;
  document["members"][1].erase("rss_mib");
  document["members"][1].erase("cores");
  document["members"][1].erase("cores_used");
  const auto lines = top_lines(state_of(document), 24, 80);
  EXPECT_THAT(lines[5], AllOf(HasSubstr("512M/16.0G"), HasSubstr("-/1.5")));
  EXPECT_THAT(lines[6], HasSubstr("-/-")) << "a member of an earlier release";
}

TEST(TopView, TroubleIsSaidAboveTheNewestFigures) {
  TopState state = state_of(document_of(1));
  state.trouble = "no answer for 0:05";
  EXPECT_EQ(top_lines(state, 24, 80)[1], "! no answer for 0:05");
  state.document.reset();
  EXPECT_THAT(top_lines(state, 24, 80), SizeIs(2));
}

TEST(TopView, AGatheringJobNamesWhatItWaitsFor) {
  ordered_json document = document_of(0);
  document.erase("step");
  document["phase"] = "gathering";
  document["waiting_for"] = "1 of 2 workers is missing";
  EXPECT_THAT(joined(top_lines(state_of(document), 24, 80)),
              AllOf(HasSubstr("gathering\n"), HasSubstr("up 1:40"),
                    HasSubstr("1 of 2 workers is missing")));
}

TEST(TopView, TextOfMembersCannotWriteToTheTerminal) {
  ordered_json document = document_of(1);
  document["members"][1]["host"] = "\x1b[2J";
  document["failure"] = "a\x07z";
  const std::string text = joined(top_lines(state_of(document), 24, 200));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("\x07")));
}

TEST(TopView, ClippingCountsCharacters) {
  EXPECT_EQ(clip_text("abc", 3), "abc");
  EXPECT_EQ(clip_text("abcd", 3), "ab>");
  EXPECT_EQ(clip_text("a\xc3\xa4\xc3\xb6z", 4), "a\xc3\xa4\xc3\xb6z");
  EXPECT_EQ(clip_text("a\xc3\xa4\xc3\xb6z", 3), "a\xc3\xa4>");
  EXPECT_EQ(clip_text("ab", 1), ">");
  EXPECT_EQ(clip_text("ab", 0), "");
}

}  // namespace
}  // namespace pushpull
