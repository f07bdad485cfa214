#include "ps/run/departures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/net/model_wire.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSpare = 105;

// Server 0 is this process. kAnna and kBert have joined.
class DeparturesTest : public testing::Test {
 protected:
  void make(const std::string& keys, int servers = 1) {
    options_.job = job_of("strategy = sync\n" + keys);
    options_.servers = servers;
    options_.workers = 2;
    options_.self.incarnation = 1;
    options_.self.host = "head";
    options_.self.pid = 1;
    admission_.emplace(options_, members_, out_);
    departures_.emplace(options_.job, members_, *admission_, phase_, run_, out_);
    for (const uint64_t who : {kAnna, kBert}) join(who);
  }
  void hello(uint64_t who, wire::Role role, const std::string& endpoint = "") {
    wire::Hello hello;
    hello.set_role(role);
    hello.set_incarnation(who);
    hello.set_host("node");
    hello.set_pid(static_cast<int64_t>(1000 + who));
    hello.set_data_endpoint(endpoint);
    admission_->on_hello(0, std::to_string(who), hello, phase_.phase());
  }
  void join_server(uint64_t who) {
    hello(who, wire::ROLE_SERVER, "tcp://127.0.0.1:" + std::to_string(6000 + who));
  }
  void join(uint64_t who, int64_t samples = 64) {
    hello(who, wire::ROLE_WORKER);
    wire::Declare declare;
    declare.set_incarnation(who);
    to_wire(table_of(3000), declare.mutable_tensors());
    declare.set_train_samples(samples);
    admission_->on_declare(0, std::to_string(who), declare, phase_.phase());
  }
  void start(const Start& start = {}) {
    run_ = std::make_unique<TrainingRun>(options_, admission_->declarations().first(), start,
                                         heard_, members_, out_);
    phase_.enter(0, wire::PHASE_TRAINING);
    out_.take_notices();
  }
  void leave(uint64_t who, int code, const std::string& text = "") {
    wire::Leave leave;
    leave.set_incarnation(who);
    leave.set_code(code);
    leave.set_text(text);
    departures_->on_leave(0, leave);
  }
  // Leaves because the gradient of these micro-batches is not finite.
  void find_bad(uint64_t who, int64_t step, Range range) {
    wire::Leave leave;
    leave.set_incarnation(who);
    leave.set_code(static_cast<int>(ErrorCode::kNotFinite));
    leave.set_text("[train] the loss is nan");
    leave.mutable_failed()->set_step(step);
    leave.mutable_failed()->set_lo(static_cast<int32_t>(range.lo));
    leave.mutable_failed()->set_hi(static_cast<int32_t>(range.hi));
    departures_->on_leave(0, leave);
  }
  std::string notices() {
    std::string all;
    for (const std::string& line : out_.take_notices()) all += line + "\n";
    return all;
  }

  // Process ids of the members that were given up while the job goes on.
  std::vector<int64_t> given_up() {
    std::vector<int64_t> pids;
    for (const MemberInfo& member : out_.take_given_up()) pids.push_back(member.pid);
    return pids;
  }

  CoordinatorOptions options_;
  Membership members_{10};
  Actions out_;
  JobPhase phase_{out_};
  std::optional<Admission> admission_;
  std::optional<Departures> departures_;
  StoringListener heard_;
  std::unique_ptr<TrainingRun> run_;
};

TEST_F(DeparturesTest, JobsPolicyDecidesAboutALostWorker) {
  make("on-worker-loss = abort\n");
  start({.load = true, .resumed = true});
  leave(kBert, 1, "killed");
  EXPECT_TRUE(phase_.failed());
  EXPECT_EQ(
      phase_.failure_text(),
      "[job] lost worker 1 (node, pid 1102) at step 0: killed; on-worker-loss=abort: the newest "
      "checkpoint is that of step 0: no step is lost; the same command with --resume auto goes on; "
      "on-worker-loss = wait would wait for another worker");
  ASSERT_TRUE(phase_.culprit());
  EXPECT_EQ(phase_.culprit()->pid, 1102);
  EXPECT_TRUE(given_up().empty()) << "the job does not go on without it";
}

TEST_F(DeparturesTest, AWorkerOfALauncherThatStartsNoOtherFailsTheJobBeforeTheStart) {
  make("on-worker-loss = abort\n");
  leave(kAnna, 3, "[data] no such folder");
  EXPECT_THAT(notices(), HasSubstr("the job waits for another"));
  members_.find(kBert)->launched = true;
  leave(kBert, 3, "[data] no such folder");
  EXPECT_TRUE(phase_.failed());
  EXPECT_EQ(phase_.failure_code(), ErrorCode::kData);
  EXPECT_THAT(phase_.failure_text(), testing::EndsWith("before the start: [data] no such folder"));
}

TEST_F(DeparturesTest, SpareTakesTheShareAtOnce) {
  make("on-worker-loss = wait\n");
  join(103);
  start();
  leave(kBert, 1, "killed");
  EXPECT_TRUE(phase_.training());
  EXPECT_EQ(members_.find(103)->rank, 1);
  EXPECT_THAT(notices(), HasSubstr("micro-batches 2 to 3 go to worker 1 (node, pid 1103)"));
}

TEST_F(DeparturesTest, LeavingTwiceIsOneLoss) {
  make("on-worker-loss = wait\n");
  start();
  wire::Stats stats;
  stats.set_computed(3);
  members_.find(kBert)->stats = stats;
  leave(kBert, 1, "killed");
  leave(kBert, 1, "killed");
  EXPECT_EQ(departures_->totals().tasks, 3);
}

TEST_F(DeparturesTest, SilenceIsALoss) {
  make("on-worker-loss = continue\n");
  start();
  members_.heard(*members_.find(kAnna), "101", 10'000);
  departures_->on_tick(10'001);
  EXPECT_EQ(members_.find(kBert), nullptr);
  EXPECT_THAT(notices(), HasSubstr("no heartbeat for 10.0 s; the others go on"));
  EXPECT_EQ(given_up(), std::vector<int64_t>{1000 + kBert});
}

TEST_F(DeparturesTest, UnclaimedWorkEndsTheJobWithoutACulprit) {
  make("on-worker-loss = wait\nreplacement-timeout = 5\nheartbeat-timeout = 3600\n");
  start();
  leave(kBert, 1, "killed");
  members_.heard(*members_.find(kAnna), "101", 5000);
  departures_->on_tick(5000);
  EXPECT_TRUE(phase_.training());
  departures_->on_tick(5001);
  EXPECT_TRUE(phase_.failed());
  EXPECT_THAT(phase_.failure_text(), HasSubstr("no worker has taken over"));
  EXPECT_FALSE(phase_.culprit());
}

TEST_F(DeparturesTest, NonFiniteLossEndsTheJobUnderAnyPolicy) {
  make("on-worker-loss = continue\n");
  start();
  leave(kBert, static_cast<int>(ErrorCode::kNotFinite), "[train] the loss is nan");
  EXPECT_EQ(phase_.failure_code(), ErrorCode::kNotFinite);
  EXPECT_EQ(phase_.failure_text(), "[train] the loss is nan (worker 1 (node, pid 1102))");
}

TEST_F(DeparturesTest, QuarantinedWorkerIsLostAndItsShareReassigned) {
  make("on-bad-gradient = quarantine\n");
  start();
  find_bad(kBert, 7, {2, 4});
  EXPECT_TRUE(phase_.training());
  EXPECT_EQ(members_.find(kBert), nullptr);
  EXPECT_EQ(departures_->quarantined(), 1);
  const std::string notice = notices();
  EXPECT_THAT(notice,
              HasSubstr("lost worker 1 (node, pid 1102) at step 0: [train] the loss is nan; "
                        "another worker computes it again (on-bad-gradient = quarantine)"));
  EXPECT_THAT(notice, HasSubstr("micro-batches 2 to 3 go to worker 0"));
}

TEST_F(DeparturesTest, SecondBadGradientOfAMicroBatchEndsTheJob) {
  make("on-bad-gradient = quarantine\n");
  join(kSpare);
  start();
  find_bad(kBert, 7, {2, 4});
  find_bad(kAnna, 7, {0, 3});
  EXPECT_EQ(phase_.failure_code(), ErrorCode::kNotFinite) << "micro-batch 2 is bad again";
  EXPECT_EQ(departures_->quarantined(), 1);
}

TEST_F(DeparturesTest, BadGradientOfAnotherMicroBatchDoesNotEndTheJob) {
  make("on-bad-gradient = quarantine\n");
  join(kSpare);
  join(106);
  start();
  find_bad(kBert, 7, {2, 4});
  find_bad(kAnna, 8, {2, 4});
  find_bad(kSpare, 7, {0, 2});
  EXPECT_TRUE(phase_.training());
  EXPECT_EQ(departures_->quarantined(), 3);
}

TEST_F(DeparturesTest, LastWorkerIsNotQuarantinedUnderContinue) {
  make("on-bad-gradient = quarantine\non-worker-loss = continue\n");
  start();
  leave(kAnna, 1, "killed");
  find_bad(kBert, 7, {2, 4});
  EXPECT_EQ(phase_.failure_code(), ErrorCode::kNotFinite);
}

TEST_F(DeparturesTest, LastWorkerIsQuarantinedUnderWait) {
  make("on-bad-gradient = quarantine\non-worker-loss = wait\n");
  start();
  find_bad(kAnna, 7, {0, 2});
  find_bad(kBert, 7, {2, 4});
  EXPECT_TRUE(phase_.training());
}

TEST_F(DeparturesTest, SpareWithANonFiniteLossIsOnlyLost) {
  make("on-worker-loss = abort\n");
  join(kSpare);
  start();
  leave(kSpare, static_cast<int>(ErrorCode::kNotFinite), "[train] the loss is nan");
  EXPECT_TRUE(phase_.training()) << "a spare has computed nothing";
  EXPECT_EQ(members_.find(kSpare), nullptr);
  EXPECT_THAT(notices(), HasSubstr("[train] the loss is nan"));
}

TEST_F(DeparturesTest, WorkersThatFailBeforeTheStartAreDropped) {
  make("on-worker-loss = abort\n");
  leave(kBert, 0);
  EXPECT_THAT(notices(), HasSubstr("before the start: it left; the job waits for another"));
  given_up();
  leave(kAnna, 3, "[data] /tmp/nix: no such folder");
  EXPECT_TRUE(given_up().empty()) << "another process would fail in the same way";
  EXPECT_TRUE(phase_.gathering());
  EXPECT_THAT(notices(), HasSubstr("[job] lost worker 0 (node, pid 1101) before the start: [data] "
                                   "/tmp/nix: no such folder; the job waits for another"));
  join(103);
  EXPECT_EQ(members_.find(103)->rank, 0) << "the places are free again";
  leave(103, static_cast<int>(ErrorCode::kNotFinite), "[train] the loss is nan");
  EXPECT_TRUE(phase_.gathering()) << "no worker has computed anything yet";
}

TEST_F(DeparturesTest, ReportsOfMembersBecomeOnePrintableLine) {
  make("on-worker-loss = abort\n");
  notices();
  leave(kAnna, 3, "a\nb\x1b[2J" + std::string(100'000, 'x'));
  const std::string notice = notices();
  EXPECT_EQ(std::count(notice.begin(), notice.end(), '\n'), 1);
  EXPECT_EQ(notice.find('\x1b'), std::string::npos);
  EXPECT_LT(notice.size(), 2000U);
}

TEST_F(DeparturesTest, DeclarationIsDroppedWithItsLastWorker) {
  make("on-worker-loss = abort\n");
  leave(kAnna, 5, "killed");
  EXPECT_EQ(admission_->declarations().first().train_samples, 64) << "kBert has declared the same";
  leave(kBert, 5, "killed");
  EXPECT_FALSE(admission_->declarations().complete());
  join(103, 128);
  EXPECT_EQ(admission_->declarations().first().train_samples, 128);
  join(104, 64);
  EXPECT_EQ(members_.find(104), nullptr) << "this worker now differs";
}

TEST_F(DeparturesTest, RunKeepsItsDeclarationWithoutWorkers) {
  make("on-worker-loss = wait\n");
  start();
  leave(kAnna, 5, "killed");
  leave(kBert, 5, "killed");
  join(103, 128);
  EXPECT_EQ(members_.find(103), nullptr);
  EXPECT_EQ(admission_->declarations().first().train_samples, 64);
}

TEST_F(DeparturesTest, RankOfAServerLostBeforeTheStartIsReused) {
  make("", 4);
  for (const uint64_t who : {201, 202, 203}) join_server(who);
  ASSERT_TRUE(admission_->complete());
  leave(201, 8, "[out] disk full");
  EXPECT_TRUE(phase_.gathering());
  EXPECT_THAT(notices(), HasSubstr("[job] lost server 1 (node, pid 1201) before the start: [out] "
                                   "disk full; the job waits for another"));
  EXPECT_FALSE(admission_->complete());
  join_server(204);
  EXPECT_EQ(members_.find(204)->rank, 1);
  EXPECT_EQ(members_.find(203)->rank, 3);
  EXPECT_TRUE(admission_->complete());
}

TEST_F(DeparturesTest, LeavingAtTheEndIsNotALoss) {
  make("on-worker-loss = abort\n");
  start();
  phase_.enter(0, wire::PHASE_FINISHED);
  leave(kAnna, 0);
  leave(kBert, 9);
  EXPECT_EQ(members_.all().size(), 1U);
  EXPECT_FALSE(phase_.failed());
}

TEST_F(DeparturesTest, LossOfServerZeroLosesItsWeights) {
  make("");
  start();
  departures_->fail_here(0, *members_.find(1), ErrorCode::kDevice, "[device] cuda:0 is lost");
  EXPECT_EQ(phase_.failure_text(),
            "[job] lost server 0 (head, pid 1) at step 0: [device] cuda:0 is lost; its weights are "
            "gone, resume from the last checkpoint");
}

}  // namespace
}  // namespace pushpull
