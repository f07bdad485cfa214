#include "ps/coordinator/departures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "common/net/tensor_wire.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSpare = 105;

// Server 0 is here; kAnna and kBert have joined.
class DeparturesTest : public testing::Test {
 protected:
  void make(const std::string& keys) {
    options_.job = job_of("strategy = sync\n" + keys);
    options_.workers = 2;
    options_.self.incarnation = 1;
    options_.self.host = "head";
    options_.self.pid = 1;
    admission_.emplace(options_, members_, out_);
    departures_.emplace(options_.job, members_, *admission_, phase_, out_);
    for (const uint64_t who : {kAnna, kBert}) join(who);
  }
  void join(uint64_t who) {
    wire::Hello hello;
    hello.set_role(wire::ROLE_WORKER);
    hello.set_incarnation(who);
    hello.set_host("node");
    hello.set_pid(static_cast<int64_t>(1000 + who));
    admission_->on_hello(0, std::to_string(who), hello, phase_.phase());
    wire::Declare declare;
    declare.set_incarnation(who);
    to_wire(table_of(3000), declare.mutable_tensors());
    declare.set_train_samples(64);
    admission_->on_declare(0, std::to_string(who), declare, phase_.phase());
  }
  void start() {
    run_.emplace(options_, admission_->declarations().first(), Start{}, members_, out_);
    departures_->set_run(&*run_);
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
  std::string notices() {
    std::string all;
    for (const std::string& line : out_.take_notices()) all += line + "\n";
    return all;
  }

  CoordinatorOptions options_;
  Membership members_{10};
  Actions out_;
  JobPhase phase_{out_};
  std::optional<Admission> admission_;
  std::optional<Departures> departures_;
  std::optional<TrainingRun> run_;
};

TEST_F(DeparturesTest, TheJobsPolicyDecidesAboutALostWorker) {
  make("on-worker-loss = abort\n");
  start();
  leave(kBert, 1, "killed");
  EXPECT_TRUE(phase_.failed());
  EXPECT_EQ(phase_.failure_text(),
            "[job] lost worker 1 (node, pid 1102) at step 0: killed; on-worker-loss=abort");
  ASSERT_TRUE(phase_.culprit());
  EXPECT_EQ(phase_.culprit()->pid, 1102);
}

TEST_F(DeparturesTest, ASpareStepsInAtOnce) {
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

TEST_F(DeparturesTest, SilenceIsALossToo) {
  make("on-worker-loss = continue\n");
  start();
  members_.heard(*members_.find(kAnna), "101", 10'000);
  departures_->on_tick(10'001);
  EXPECT_EQ(members_.find(kBert), nullptr);
  EXPECT_THAT(notices(), HasSubstr("no heartbeat for 10.0 s; the others go on"));
}

TEST_F(DeparturesTest, WorkThatNobodyComesForEndsTheJobWithoutACulprit) {
  make("on-worker-loss = wait\nreplacement-timeout = 5\nheartbeat-timeout = 3600\n");
  start();
  leave(kBert, 1, "killed");
  members_.heard(*members_.find(kAnna), "101", 5000);
  departures_->on_tick(5000);
  EXPECT_TRUE(phase_.training());
  departures_->on_tick(5001);
  EXPECT_TRUE(phase_.failed());
  EXPECT_THAT(phase_.failure_text(), HasSubstr("no worker has come"));
  EXPECT_FALSE(phase_.culprit());
}

TEST_F(DeparturesTest, ALossThatIsNotFiniteEndsTheJobUnderAnyPolicy) {
  make("on-worker-loss = continue\n");
  start();
  leave(kBert, static_cast<int>(ErrorCode::kNotFinite), "[train] the loss is nan");
  EXPECT_EQ(phase_.failure_code(), ErrorCode::kNotFinite);
  EXPECT_EQ(phase_.failure_text(), "[train] the loss is nan (worker 1 (node, pid 1102))");
}

TEST_F(DeparturesTest, ASpareThatSaysSoIsOnlyLost) {
  make("on-worker-loss = abort\n");
  join(kSpare);
  start();
  leave(kSpare, static_cast<int>(ErrorCode::kNotFinite), "[train] the loss is nan");
  EXPECT_TRUE(phase_.training()) << "it has computed nothing";
  EXPECT_EQ(members_.find(kSpare), nullptr);
  EXPECT_THAT(notices(), HasSubstr("[train] the loss is nan"));
}

TEST_F(DeparturesTest, BeforeTheStartAWorkerCanBeReplacedUnlessItSaysWhatIsWrong) {
  make("on-worker-loss = abort\n");
  leave(kBert, 0);
  EXPECT_TRUE(phase_.gathering());
  EXPECT_THAT(notices(), HasSubstr("before the start: it left"));
  leave(kAnna, 256, "[worker] strange");
  EXPECT_TRUE(phase_.failed());
  EXPECT_EQ(phase_.failure_code(), ErrorCode::kPeerLost) << "256 would look like a success";
}

TEST_F(DeparturesTest, AtTheEndLeavingIsWhatMembersDo) {
  make("on-worker-loss = abort\n");
  start();
  phase_.enter(0, wire::PHASE_FINISHED);
  leave(kAnna, 0);
  leave(kBert, 9);
  EXPECT_EQ(members_.all().size(), 1U);
  EXPECT_FALSE(phase_.failed());
}

TEST_F(DeparturesTest, AServerOfThisProcessTakesItsWeightsAlong) {
  make("");
  start();
  departures_->fail_here(0, *members_.find(1), ErrorCode::kDevice, "[device] cuda:0 is lost");
  EXPECT_EQ(phase_.failure_text(),
            "[job] lost server 0 (head, pid 1) at step 0: [device] cuda:0 is lost; its weights are "
            "gone, resume from the last checkpoint");
}

}  // namespace
}  // namespace pushpull
