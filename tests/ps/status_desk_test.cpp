#include "ps/report/status_desk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "common/job/job.h"
#include "tests/ps/cluster_parts.h"
#include "tests/ps/refusals.h"

namespace pushpull {
namespace {

TEST(AnswerLimits, OneConnectionGetsFiveAnswersASecond) {
  AnswerLimits limits;
  int answers = 0;
  for (int64_t ms = 0; ms < 1000; ++ms) answers += limits.take(5000 + ms, "anna") ? 1 : 0;
  EXPECT_EQ(answers, 5);
  EXPECT_TRUE(limits.take(5000, "bert"));
}

TEST(AnswerLimits, ConnectionThatNeverReadsHasABoundedCost) {
  AnswerLimits limits;
  int64_t answers = 0;
  for (int64_t ms = 0; ms < 600'000; ms += 100) answers += limits.take(ms, "anna") ? 1 : 0;
  EXPECT_EQ(answers, AnswerLimits::kMaxOfConnection);
}

TEST(AnswerLimits, ConnectionsShareTheTotal) {
  AnswerLimits limits;
  int64_t answers = 0;
  for (int i = 0; i < 10'000; ++i) {
    answers += limits.take(10'000 + i / 10, "peer " + std::to_string(i)) ? 1 : 0;
  }
  EXPECT_EQ(answers, AnswerLimits::kMaxPerSecond);
  EXPECT_TRUE(limits.take(12'000, "anna")) << "a new second";
}

TEST(AnswerLimits, RemembersABoundedNumberOfConnections) {
  AnswerLimits limits;
  EXPECT_TRUE(limits.take(0, "first"));
  int64_t ms = 1000;
  for (size_t i = 0; i < AnswerLimits::kMaxConnections; ++i, ms += 25) {
    EXPECT_TRUE(limits.take(ms, std::to_string(i)));
  }
  EXPECT_FALSE(limits.take(ms, std::to_string(AnswerLimits::kMaxConnections - 1)));
}

}  // namespace

namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr uint64_t kSelf = 1;

// A job of one server and two workers. The test plays the members.
class StatusDeskTest : public testing::Test {
 protected:
  StatusDeskTest() {
    members_.add({.role = wire::ROLE_SERVER,
                  .rank = 0,
                  .incarnation = kSelf,
                  .host = "head",
                  .pid = 10,
                  .data_endpoint = "tcp://head:5"});
    facts_.run_id = kTermId;
    facts_.strategy = "sync";
    facts_.workers = 2;
  }
  MemberInfo& add(uint64_t who, int rank) {
    MemberInfo member{.role = wire::ROLE_WORKER, .rank = rank, .incarnation = who, .host = "node"};
    member.pid = static_cast<int64_t>(1000 + who);
    member.peer = "peer " + std::to_string(who);
    member.declared = true;
    member.last_heard_ms = now_;
    return members_.add(member);
  }
  // Runs a turn of the driver. Returns true if the file was written.
  bool turn(int64_t ms) {
    now_ += ms;
    if (desk_.due(now_, facts_.phase)) {
      const bool trains = facts_.phase != wire::PHASE_GATHERING;
      desk_.update(now_, trains ? &progress_ : nullptr, trains ? groups_.get() : nullptr, own_,
                   facts_);
    }
    for (const Outgoing& out : desk_.take_answers(now_, 777)) {
      answers_.push_back({out.to, out.message.header.status_reply()});
    }
    const auto text = desk_.take_file();
    if (!text) return false;
    file_ = json::parse(*text);
    return true;
  }
  std::string why_not(const PeerId& peer, int64_t number = 1) {
    wire::StatusRequest request;
    request.set_number(number);
    return reason_of(desk_.ask(now_, peer, request));
  }
  std::vector<int64_t> pids() const {
    std::vector<int64_t> out;
    for (const json& member : file_.at("members")) out.push_back(member.at("pid"));
    return out;
  }

  Membership members_{5.0};
  StatusDesk desk_{members_, kSelf};
  std::unique_ptr<WorkGroups> groups_ = std::make_unique<WorkGroups>(1, members_);
  const Barriers barriers_;
  CommittedWork progress_{job_of(), 2, barriers_};
  wire::Stats own_;
  RunFigures facts_;
  int64_t now_ = 1'000'000;
  json file_;
  std::vector<std::pair<PeerId, wire::StatusReply>> answers_;
};

TEST_F(StatusDeskTest, FileExistsBeforeTheFirstMember) {
  EXPECT_TRUE(turn(5));
  EXPECT_EQ(pids(), std::vector<int64_t>{10});
  EXPECT_TRUE(file_.at("left").empty());
  const json& server = file_.at("members")[0];
  EXPECT_EQ(server.at("role"), "server");
  EXPECT_EQ(server.at("rank"), 0);
  EXPECT_EQ(server.at("host"), "head");
  EXPECT_EQ(server.at("samples"), 0);
  EXPECT_EQ(server.at("address"), "tcp://head:5");
}

TEST_F(StatusDeskTest, FileIsWrittenAtEachChangeAndEverySecond) {
  turn(5);
  int written = 0;
  for (int i = 0; i < 1000; ++i) written += turn(5) ? 1 : 0;
  EXPECT_EQ(written, 5);
  add(kAnna, 0);
  for (int i = 0; i < 11 && !turn(5); ++i) {
  }
  EXPECT_EQ(pids(), (std::vector<int64_t>{10, 1101}));
  members_.remove(kAnna, "it left", now_);
  for (int i = 0; i < 11 && !turn(5); ++i) {
  }
  EXPECT_EQ(pids(), std::vector<int64_t>{10});
  ASSERT_EQ(file_.at("left").size(), 1U);
  EXPECT_EQ(file_.at("left")[0].at("pid"), 1101);
  EXPECT_EQ(file_.at("left")[0].at("rank"), 0);
  EXPECT_EQ(file_.at("left")[0].at("reason"), "it left");
}

TEST_F(StatusDeskTest, SamplesBelongToTheProcessNotToItsRank) {
  add(kAnna, 0);
  facts_.phase = wire::PHASE_TRAINING;
  progress_.add({kAnna, 0, {0, 4}, {1, 1, 1, 1}, true}, 0);
  members_.remove(kAnna, "no heartbeat for 5.2 s", now_);
  add(kBert, 0);
  progress_.add({kBert, 1, {0, 4}, {1, 1, 1, 1}, false}, 0);
  turn(5);
  EXPECT_EQ(file_.at("members")[1].at("samples"), 0)
      << "those samples came from an earlier process";
  EXPECT_EQ(file_.at("members")[1].at("clock"), 2);
  EXPECT_EQ(file_.at("members")[1].at("state"), "active");
  EXPECT_EQ(file_.at("left")[0].at("samples"), 8);
  EXPECT_EQ(file_.at("left")[0].at("step"), 1);
}

TEST_F(StatusDeskTest, AtTheEndItShowsTheMembersOfTheLastStep) {
  add(kAnna, 0);
  add(kBert, 1);
  facts_.phase = wire::PHASE_TRAINING;
  turn(5);
  facts_.phase = wire::PHASE_FINISHING;
  turn(60);
  members_.find(kBert)->stats.set_waits_for("nothing");
  progress_.add({kAnna, 0, {0, 4}, {1, 1, 1, 1}, true}, 0);
  members_.remove(kAnna);
  members_.find(kBert)->rank = 0;  // the rank is free, but too late
  facts_.phase = wire::PHASE_FINISHED;
  EXPECT_TRUE(turn(60)) << "the final figures";
  EXPECT_EQ(pids(), (std::vector<int64_t>{10, 1101, 1102}));
  EXPECT_EQ(file_.at("members")[1].at("samples"), 8);
  EXPECT_EQ(file_.at("members")[2].at("waits_for"), "nothing");
  EXPECT_EQ(file_.at("members")[2].at("rank"), 1);
  members_.remove(kBert);
  turn(1000);
  EXPECT_EQ(pids(), (std::vector<int64_t>{10, 1101, 1102}));
}

TEST_F(StatusDeskTest, WorkersOfAGroupHaveTheirGroupAndStage) {
  for (int rank = 0; rank < 3; ++rank) add(kAnna + static_cast<uint64_t>(rank), rank);
  facts_.phase = wire::PHASE_TRAINING;
  turn(5);
  const auto of_worker = [&](size_t rank, const char* field) {
    return file_.at("members").at(rank + 1).at(field);
  };
  EXPECT_EQ(of_worker(0, "group"), nullptr);
  EXPECT_EQ(of_worker(0, "stage"), nullptr);
  EXPECT_FALSE(file_.at("members").at(0).contains("stage")) << "a server has none";
  groups_ = std::make_unique<WorkGroups>(2, members_);
  groups_->form();
  Commit joined{kAnna + 1, 0, {0, 4}, {1, 1, 1, 1}, true};
  joined.others = {kAnna};
  progress_.add(joined, 1);
  turn(1000);
  for (const size_t rank : {0, 1}) {
    EXPECT_EQ(of_worker(rank, "group"), 1);
    EXPECT_EQ(of_worker(rank, "stage"), rank);
    EXPECT_EQ(of_worker(rank, "samples"), 8);
    EXPECT_EQ(of_worker(rank, "state"), "active");
  }
  EXPECT_EQ(of_worker(2, "group"), nullptr);
  EXPECT_EQ(of_worker(2, "stage"), nullptr);
  EXPECT_EQ(of_worker(2, "state"), "spare");
  facts_.phase = wire::PHASE_FINISHING;
  turn(60);
  groups_->lose(kAnna);
  members_.remove(kAnna);
  turn(1000);
  EXPECT_EQ(of_worker(1, "group"), 1) << "those that leave at the end break up no group";
  EXPECT_EQ(of_worker(0, "stage"), 0);
}

TEST_F(StatusDeskTest, FailedJobKeepsTheRemainingMembers) {
  add(kAnna, 0);
  add(kBert, 1);
  facts_.phase = wire::PHASE_TRAINING;
  turn(5);
  members_.remove(kAnna, "its connection closed 2.0 s ago", now_);
  facts_.phase = wire::PHASE_FAILED;
  turn(60);
  members_.remove(kBert);
  turn(1000);
  EXPECT_EQ(pids(), (std::vector<int64_t>{10, 1102}));
  EXPECT_EQ(file_.at("left")[0].at("pid"), 1101);
}

TEST_F(StatusDeskTest, SparesHaveNoRankAndRanksAreUnique) {
  add(kAnna, 0);
  add(kBert, -1);
  add(kCoordinator, -1);
  turn(5);
  std::set<int> ranks;
  for (const json& member : file_.at("members")) {
    if (member.at("role") != "worker") continue;
    EXPECT_EQ(member.at("rank").is_null(), member.at("state") == "spare");
    if (member.at("rank").is_null()) continue;
    EXPECT_TRUE(ranks.insert(member.at("rank").get<int>()).second);
  }
  EXPECT_EQ(ranks.size(), 1U);
}

TEST_F(StatusDeskTest, ResourcesAreThoseOfTheNewestReports) {
  MemberInfo& worker = add(3, 0);
  worker.stats.set_rss_kib(2048);
  worker.stats.set_memory_limit_kib(4096);
  worker.stats.set_cores(1.5);
  worker.stats.set_cpu_seconds(1.0);
  worker.stats.set_device_used_kib(1024);
  worker.stats.set_device_kib(3072);
  EXPECT_TRUE(turn(0));
  const json first = file_.at("members").at(1);
  EXPECT_EQ(first.at("rss_mib"), 2.0);
  EXPECT_EQ(first.at("memory_limit_mib"), 4.0);
  EXPECT_EQ(first.at("cores"), 1.5);
  EXPECT_EQ(first.at("cores_used"), nullptr) << "one report";
  EXPECT_EQ(file_.at("members").at(0).at("cores"), nullptr) << "an earlier release sends none";
  EXPECT_EQ(file_.at("members").at(0).at("rss_mib"), nullptr);
  EXPECT_EQ(first.at("device_used_mib"), 1.0);
  EXPECT_EQ(first.at("device_mib"), 3.0);
  EXPECT_EQ(file_.at("members").at(0).at("device_used_mib"), nullptr) << "it has no device";
  EXPECT_EQ(first.at("sent_bytes_per_second"), nullptr);
  worker.stats.set_cpu_seconds(1.5);
  worker.stats.set_bytes_sent(100);
  worker.stats.set_bytes_received(200);
  worker.last_heard_ms += 1'000;
  EXPECT_TRUE(turn(1'100));
  EXPECT_EQ(file_.at("members").at(1).at("cores_used"), 0.5);
  EXPECT_EQ(file_.at("members").at(1).at("sent_bytes_per_second"), 100.0);
  EXPECT_EQ(file_.at("members").at(1).at("received_bytes_per_second"), 200.0);
}

TEST_F(StatusDeskTest, InvalidTextDoesNotBreakTheFile) {
  MemberInfo& anna = add(kAnna, 0);
  anna.host = "\x1b[31m\xff\"";
  members_.remove(kAnna, std::string("\xc3\x28\n", 3), now_);
  add(kBert, 0).host = std::string(5000, '\xfe');
  turn(5);
  EXPECT_EQ(file_.at("left")[0].at("host"), "\\x1b[31m\\xff\"");
  EXPECT_LT(file_.at("members")[1].at("host").get<std::string>().size(), 2000U);
}

TEST_F(StatusDeskTest, QueryIsAnsweredWithMembersAndJob) {
  add(kAnna, 0);
  facts_.waiting_for = "waiting for members: 1 of 2 workers";
  turn(5);
  EXPECT_EQ(why_not("x", 42), "");
  turn(5);
  ASSERT_EQ(answers_.size(), 1U);
  EXPECT_EQ(answers_[0].first, "x");
  EXPECT_EQ(answers_[0].second.number(), 42);
  EXPECT_EQ(answers_[0].second.utc_ms(), 777);
  const json status = json::parse(answers_[0].second.json());
  EXPECT_EQ(status.at("phase"), "gathering");
  EXPECT_EQ(status.at("strategy"), "sync");
  EXPECT_EQ(status.at("waiting_for"), facts_.waiting_for);
  EXPECT_EQ(status.at("members").size(), 2U);
  for (const char* field : {"role", "rank", "pid", "host", "step", "samples", "state"}) {
    EXPECT_EQ(status.at("members")[1].at(field), file_.at("members")[1].at(field));
  }
  EXPECT_FALSE(status.contains("step"));
}

TEST_F(StatusDeskTest, AnswerHoldsNoSecretOfAMember) {
  constexpr uint64_t kSecret = 987'654'321'987'654'321;
  add(kSecret, 0).pid = 5;
  facts_.run_id = 0x123456789abcdef;
  facts_.phase = wire::PHASE_TRAINING;
  facts_.step = 7;
  EXPECT_EQ(why_not("x"), "");
  turn(5);
  ASSERT_EQ(answers_.size(), 1U);
  const std::string text = answers_[0].second.json();
  for (const std::string& secret :
       {std::to_string(facts_.run_id), std::string("123456789abcdef"), std::to_string(kSecret)}) {
    EXPECT_EQ(text.find(secret), std::string::npos) << secret;
  }
  EXPECT_EQ(json::parse(text).at("step"), 7);
}

TEST_F(StatusDeskTest, FloodOfQueriesIsAnsweredRarelyFromFewTexts) {
  for (int64_t ms = 0; ms < 1000; ++ms) {
    why_not("flood");
    turn(1);
  }
  EXPECT_LE(answers_.size(), 6U);
  EXPECT_EQ(why_not("flood"), "");
  EXPECT_EQ(why_not("flood"), "status-rate");
  EXPECT_EQ(why_not("another one"), "");
}

}  // namespace

}  // namespace pushpull
