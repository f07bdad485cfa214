#include "ps/members/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/net/model_wire.h"
#include "tests/ps/cluster_parts.h"
#include "tests/ps/refusals.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

// A job of two servers, of which server 0 is this process, and two workers.
class AdmissionTest : public testing::Test {
 protected:
  explicit AdmissionTest(const std::string& keys = "strategy = sync\n") {
    options_.job = job_of(keys);
    options_.term_id = kTermId;
    options_.servers = 2;
    options_.workers = 2;
    options_.self.incarnation = 1;
    options_.self.host = "head";
    options_.self.pid = 1;
  }
  Admission& admission() {
    if (!admission_) admission_.emplace(options_, members_, out_);
    return *admission_;
  }
  static PeerId peer_of(uint64_t who) { return "peer " + std::to_string(who); }
  static wire::Hello hello_of(uint64_t who, wire::Role role = wire::ROLE_WORKER,
                              const std::string& endpoint = "") {
    wire::Hello hello;
    hello.set_role(role);
    hello.set_incarnation(who);
    hello.set_host("node");
    hello.set_pid(static_cast<int64_t>(1000 + who));
    hello.set_data_endpoint(endpoint);
    return hello;
  }
  static wire::Declare declaration_of(uint64_t who) {
    wire::Declare declare;
    declare.set_incarnation(who);
    to_wire(table_of(3000), declare.mutable_tensors());
    declare.set_train_samples(64);
    declare.set_numerics("cpu avx2");
    return declare;
  }
  std::string hello(const wire::Hello& hello) {
    return reason_of(admission().on_hello(now_ms_, peer_of(hello.incarnation()), hello, phase_));
  }
  std::string server(uint64_t who, const std::string& endpoint) {
    return hello(hello_of(who, wire::ROLE_SERVER, endpoint));
  }
  Admission::Declared declare(const wire::Declare& declare) {
    return admission().on_declare(now_ms_, peer_of(declare.incarnation()), declare, phase_);
  }
  void join(uint64_t who) {
    EXPECT_EQ(hello(hello_of(who)), "");
    EXPECT_TRUE(declare(declaration_of(who)).admitted);
  }
  // Returns the text of the newest Refused, or "" if none was sent.
  std::string refused_text() {
    std::string text;
    for (const Outgoing& out : out_.take_messages()) {
      if (out.message.header.has_refused()) text = out.message.header.refused().text();
    }
    return text;
  }

  CoordinatorOptions options_;
  Membership members_{10};
  Actions out_;
  wire::Phase phase_ = wire::PHASE_GATHERING;
  int64_t now_ms_ = 0;
  std::optional<Admission> admission_;
};

TEST_F(AdmissionTest, IsCompleteWhenEveryPlaceIsTaken) {
  join(kAnna);
  join(kBert);
  EXPECT_FALSE(admission().complete());
  EXPECT_EQ(admission().waiting_for(), "waiting for members: 1 of 2 servers, 2 of 2 workers");
  EXPECT_EQ(server(50, "tcp://10.0.0.1:7000"), "");
  EXPECT_TRUE(admission().complete());
  members_.remove(kAnna);
  EXPECT_FALSE(admission().complete());
}

TEST_F(AdmissionTest, AWorkerHasTheRankThatItsLauncherGivesItIfThatIsFree) {
  const auto rank_of = [&](uint64_t who, int wanted_rank) {
    wire::Hello wanting = hello_of(who);
    wanting.set_wanted_rank(wanted_rank + 1);
    hello(wanting);
    declare(declaration_of(who));
    return members_.find(who)->rank;
  };
  EXPECT_EQ(rank_of(11, 1), 1) << "although it is the first";
  EXPECT_EQ(rank_of(12, 1), 0) << "another has it";
  members_.remove(11);
  EXPECT_EQ(rank_of(13, 2), 1) << "there are two workers";
  members_.remove(12);
  EXPECT_EQ(rank_of(14, INT32_MIN), 0);
}

TEST_F(AdmissionTest, TheAnswerToHelloHasTheRankThatNoOtherWorkerHas) {
  const auto told = [&](uint64_t who, int wanted_rank = -1) {
    wire::Hello wanting = hello_of(who);
    wanting.set_wanted_rank(wanted_rank + 1);
    hello(wanting);
    return out_.take_messages().back().message.header.job_text().rank();
  };
  EXPECT_EQ(told(11), 0);
  EXPECT_EQ(told(12), 1) << "the first has not declared yet";
  EXPECT_EQ(told(13), 2) << "a spare";
  EXPECT_EQ(told(11), 0) << "again";
  declare(declaration_of(12));
  EXPECT_EQ(members_.find(12)->rank, 1);
  declare(declaration_of(11));
  EXPECT_EQ(members_.find(11)->rank, 0);
  members_.find(12)->disconnected_ms = 5;
  EXPECT_EQ(told(14, 1), 1) << "it comes in the place of a worker that is about to be given up";
  members_.remove(11);
  EXPECT_EQ(told(15), 0);
}

TEST_F(AdmissionTest, RepeatedHelloGivesOneMemberAndTwoAnswers) {
  hello(hello_of(kAnna));
  hello(hello_of(kAnna));
  EXPECT_EQ(members_.count(wire::ROLE_WORKER), 1);
  const auto answers = out_.take_messages();
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[1].message.header.job_text().term_id(), kTermId);
}

TEST_F(AdmissionTest, InvalidHelloIsRefusedWithItsReason) {
  EXPECT_EQ(hello(hello_of(0)), "no-incarnation");
  EXPECT_EQ(hello(hello_of(kAnna, wire::ROLE_UNSET)), "bad-role");
  EXPECT_EQ(server(50, "tcp://host:*"), "bad-endpoint");
  wire::Hello endless = hello_of(kAnna);
  endless.set_host(std::string(1 << 20, 'x'));
  const Checked refusal = admission().on_hello(0, "peer", endless, phase_);
  EXPECT_EQ(reason_of(refusal), "long-hello");
  EXPECT_EQ(refusal->text, "expected at most 512 bytes a word, got 1048576");
  EXPECT_EQ(members_.all().size(), 1U);
}

TEST_F(AdmissionTest, AProcessOfAnotherJobIsRefusedBeforeItIsAMember) {
  options_.job_token = "Slurm step 77.0";
  wire::Hello other = hello_of(kAnna);
  other.set_job_token("Slurm step 78.0");
  EXPECT_EQ(hello(other), "");
  EXPECT_EQ(refused_text(),
            "[join] this server belongs to another job, Slurm step 77.0, and this process to Slurm "
            "step 78.0; start both by one launcher, or set one PUSHPULL_JOB_TOKEN for both");
  EXPECT_EQ(members_.find(kAnna), nullptr);
  other.set_job_token("Slurm step 77.0");
  EXPECT_EQ(hello(other), "");
  EXPECT_EQ(hello(hello_of(kBert)), "") << "its user gave it the address";
  EXPECT_EQ(refused_text(), "");
  EXPECT_EQ(members_.count(wire::ROLE_WORKER), 2);
}

TEST_F(AdmissionTest, AJobWithoutATokenAdmitsAll) {
  wire::Hello hello_of_task = hello_of(kAnna);
  hello_of_task.set_job_token("Open MPI job 5");
  EXPECT_EQ(hello(hello_of_task), "");
  EXPECT_NE(members_.find(kAnna), nullptr);
  hello_of_task.set_incarnation(kBert);
  hello_of_task.set_job_token(std::string(4096, 'x'));
  EXPECT_EQ(hello(hello_of_task), "long-hello");
}

TEST_F(AdmissionTest, SurplusServerIsToldHowToStartMore) {
  server(50, "tcp://10.0.0.1:7000");
  EXPECT_EQ(server(51, "tcp://10.0.0.2:7000"), "");
  const auto answers = out_.take_messages();  // it may replace a dead server that is not yet missed
  ASSERT_EQ(answers.size(), 2U) << "one for each server";
  EXPECT_EQ(answers[1].message.header.no_place_yet().text(),
            "the job has all its 2 servers; this one is needed only if one of them is lost");
  now_ms_ += 12'001;
  EXPECT_EQ(server(51, "tcp://10.0.0.2:7000"), "");
  EXPECT_EQ(refused_text(),
            "[join] the job was started for 2 servers and has them all; start it with --servers 3");
}

TEST_F(AdmissionTest, ServerWaitsForAPlaceAlthoughManyOthersAsk) {
  server(50, "tcp://10.0.0.1:7000");
  EXPECT_EQ(server(51, ""), "");
  uint64_t other = 1000;
  for (int i = 0; i < 10; ++i, now_ms_ += 500) {
    for (const uint64_t last = other + 50; other < last; ++other) EXPECT_EQ(server(other, ""), "");
    EXPECT_EQ(server(51, ""), "") << "it repeats its Hello";
    EXPECT_EQ(refused_text(), "") << i;
  }
  members_.remove(50);
  EXPECT_EQ(server(51, "tcp://10.0.0.2:7000"), "");
  EXPECT_NE(members_.find(51), nullptr);
}

TEST_F(AdmissionTest, WaitingServerIsToldThatTheJobIsOver) {
  server(50, "tcp://10.0.0.1:7000");
  server(51, "tcp://10.0.0.2:7000");
  out_.take_messages();
  admission().end_waiting({ErrorCode::kUnreachable, "[join] the job is over"});
  EXPECT_EQ(refused_text(), "[join] the job is over");
  admission().end_waiting({ErrorCode::kUnreachable, "[join] the job is over"});
  EXPECT_EQ(refused_text(), "") << "only once";
}

TEST_F(AdmissionTest, ServerThatWaitsForTheNextTermHearsHowTheJobEnds) {
  server(50, "tcp://10.0.0.1:7000");
  members_.remove(50);
  admission().hold_servers();
  server(51, "tcp://10.0.0.2:7000");
  EXPECT_EQ(refused_text(), "");
  admission().end_waiting({ErrorCode::kIo, "[join] the job is over: [out] disk full"});
  EXPECT_EQ(refused_text(), "[join] the job is over: [out] disk full");
}

TEST_F(AdmissionTest, WhenTooManyWaitForTheEndTheOldestIsForgotten) {
  phase_ = wire::PHASE_FINISHING;
  for (uint64_t who = 1000; who < 1064; ++who) {
    hello(hello_of(who));
    ASSERT_EQ(refused_text(), "") << who;
  }
  hello(hello_of(kAnna));
  EXPECT_EQ(refused_text(), "");
  admission().end_waiting({ErrorCode::kIo, "[join] the job is over: [out] disk full"});
  size_t refused = 0;
  for (const Outgoing& message : out_.take_messages())
    refused += message.message.header.has_refused();
  EXPECT_EQ(refused, 64U);
}

TEST_F(AdmissionTest, ServerThatHasTakenAPlaceWaitsNoMore) {
  server(50, "tcp://10.0.0.1:7000");
  server(51, "tcp://10.0.0.2:7000");
  members_.remove(50);
  EXPECT_EQ(server(51, "tcp://10.0.0.2:7000"), "");
  EXPECT_EQ(members_.count(wire::ROLE_SERVER), 2);
  out_.take_messages();
  admission().end_waiting({ErrorCode::kUnreachable, "[join] the job is over"});
  EXPECT_EQ(refused_text(), "");
}

TEST_F(AdmissionTest, MembersAreBoundedAndSilentOnesAreDroppedFirst) {
  for (uint64_t who = 1000; who < 1000 + 4099; ++who, ++now_ms_) {
    ASSERT_EQ(hello(hello_of(who)), "") << who;
  }
  members_.find(1000)->state_version = 1;  // as if it had sent a heartbeat
  members_.find(1001)->declared = true;
  EXPECT_EQ(hello(hello_of(kAnna)), "");
  EXPECT_EQ(members_.all().size(), 4100U);
  EXPECT_NE(members_.find(kAnna), nullptr);
  EXPECT_NE(members_.find(1001), nullptr);
  EXPECT_EQ(members_.find(1002), nullptr) << "the oldest member that sent only Hello";
  for (auto& [who, member] : members_.all()) member.state_version = 1;
  EXPECT_EQ(hello(hello_of(kBert)), "no-room");
}

TEST_F(AdmissionTest, AConnectionBelongsToOneProcess) {
  EXPECT_EQ(hello(hello_of(kAnna)), "");
  EXPECT_EQ(hello(hello_of(kAnna)), "") << "a repeat";
  EXPECT_EQ(reason_of(admission().on_hello(0, peer_of(kAnna), hello_of(kBert), phase_)),
            "one-member");
  EXPECT_EQ(members_.count(wire::ROLE_WORKER), 1);
}

TEST_F(AdmissionTest, HelloDoesNotChangeTheState) {
  out_.take_state_wanted();
  hello(hello_of(kAnna));
  EXPECT_FALSE(out_.take_state_wanted());
  EXPECT_EQ(out_.take_lacking(), std::set<uint64_t>{kAnna});
}

TEST_F(AdmissionTest, HelloAfterTheEndIsRefused) {
  phase_ = wire::PHASE_FINISHED;
  admission().end_waiting({ErrorCode::kUnreachable, "[join] the job is over"});
  hello(hello_of(kAnna));
  EXPECT_EQ(refused_text(), "[join] the job is over");
  EXPECT_EQ(members_.count(wire::ROLE_WORKER), 0);
}

TEST_F(AdmissionTest, ThirdWorkerIsASpareUntilAPlaceIsFree) {
  join(kAnna);
  join(kBert);
  join(103);
  EXPECT_EQ(members_.find(103)->rank, -1);
  admission().promote_spares();
  EXPECT_EQ(members_.find(103)->rank, -1);
  members_.remove(kAnna);
  admission().promote_spares();
  EXPECT_EQ(members_.find(103)->rank, 0);
  EXPECT_THAT(out_.take_notices().back(), HasSubstr("was a spare and takes the free place"));
}

TEST_F(AdmissionTest, OnlyWorkersMayDeclare) {
  server(50, "tcp://10.0.0.1:7000");
  EXPECT_EQ(reason_of(declare(declaration_of(999)).refusal), "unknown-member");
  EXPECT_EQ(reason_of(declare(declaration_of(50)).refusal), "wrong-role");
}

TEST_F(AdmissionTest, MismatchedWorkerIsRemoved) {
  join(kAnna);
  hello(hello_of(kBert));
  wire::Declare other = declaration_of(kBert);
  other.set_train_samples(63);
  const Admission::Declared declared = declare(other);
  EXPECT_FALSE(declared.admitted);
  EXPECT_EQ(reason_of(declared.refusal), "") << "an honest mismatch is not a protocol error";
  EXPECT_THAT(refused_text(), HasSubstr("63 + 0"));
  EXPECT_EQ(members_.find(kBert), nullptr);
}

TEST_F(AdmissionTest, InvalidDeclarationIsCounted) {
  hello(hello_of(kAnna));
  wire::Declare bad = declaration_of(kAnna);
  bad.set_train_samples(-1);
  EXPECT_EQ(reason_of(declare(bad).refusal), "bad-declaration");
  EXPECT_EQ(members_.find(kAnna), nullptr);
}

TEST_F(AdmissionTest, JobThatDoesNotFitItsDataIsNotAWorkersFault) {
  hello(hello_of(kAnna));
  wire::Declare few = declaration_of(kAnna);
  few.set_train_samples(5);
  const Admission::Declared declared = declare(few);
  ASSERT_TRUE(declared.job_error);
  EXPECT_EQ(declared.job_error->code(), ErrorCode::kUsage);
  EXPECT_FALSE(declared.refusal);
}

class AdmissionWithDataFolder : public AdmissionTest {
 protected:
  AdmissionWithDataFolder() : AdmissionTest("dataset = idx\ndata-dir = /data\n") {}
};

// With a data folder, the data of one host may be wrong while the others are right.
TEST_F(AdmissionWithDataFolder, WorkerWithUnfitDataIsRefusedAlone) {
  hello(hello_of(kAnna));
  wire::Declare few = declaration_of(kAnna);
  few.set_train_samples(5);
  const Admission::Declared declared = declare(few);
  EXPECT_FALSE(declared.admitted || declared.job_error || declared.refusal);
  EXPECT_EQ(members_.find(kAnna), nullptr);
  EXPECT_THAT(refused_text(), HasSubstr("5 training samples"));
  EXPECT_THAT(out_.take_notices().back(), HasSubstr("refused worker (node, pid 1101): [job]"));
  EXPECT_FALSE(admission().declarations().complete())
      << "a refused declaration binds no other worker";
  join(kBert);
}

class AllReduceAdmission : public AdmissionTest {
 protected:
  AllReduceAdmission() : AdmissionTest("strategy = allreduce:ring\n") {}
  Admission::Declared declare_at(uint64_t who, const std::string& endpoint) {
    hello(hello_of(who));
    wire::Declare declaration = declaration_of(who);
    declaration.set_peer_endpoint(endpoint);
    return declare(declaration);
  }
};

TEST_F(AllReduceAdmission, WorkerMustDeclareItsAddress) {
  const Admission::Declared nowhere = declare_at(kAnna, "");
  EXPECT_EQ(reason_of(nowhere.refusal), "bad-endpoint");
  EXPECT_THAT(nowhere.refusal->text, HasSubstr("from worker (node, pid 1101)"));
  EXPECT_TRUE(declare_at(kAnna, "tcp://10.0.0.1:7000").admitted);
  EXPECT_FALSE(declare_at(kBert, "tcp://10.0.0.1:7000").admitted);
  EXPECT_THAT(refused_text(), HasSubstr("is the address of worker 0"));
}

class GroupsAllReduceAdmission : public AdmissionTest {
 protected:
  GroupsAllReduceAdmission() : AdmissionTest("strategy = allreduce:ring\nstages = 2\n") {}
  Admission::Declared declare_at(uint64_t who, const std::string& peer, const std::string& group) {
    hello(hello_of(who));
    wire::Declare declaration = declaration_of(who);
    declaration.set_peer_endpoint(peer);
    declaration.set_group_endpoint(group);
    declaration.set_local_stages(2);
    return declare(declaration);
  }
};

TEST_F(GroupsAllReduceAdmission, WorkerMustDeclareBothAddresses) {
  const std::string at = "tcp://10.0.0.1:";
  EXPECT_EQ(reason_of(declare_at(kAnna, at + "7000", "").refusal), "bad-endpoint");
  EXPECT_EQ(reason_of(declare_at(kAnna, "", at + "7001").refusal), "bad-endpoint");
  EXPECT_TRUE(declare_at(kAnna, at + "7000", at + "7001").admitted);
  EXPECT_EQ(members_.find(kAnna)->local_stages, 2);
  EXPECT_EQ(members_.find(kAnna)->peer_endpoint, at + "7000");
  EXPECT_EQ(members_.find(kAnna)->group_endpoint, at + "7001");
  EXPECT_FALSE(declare_at(kBert, at + "7001", at + "7002").admitted);
  EXPECT_THAT(refused_text(), HasSubstr("is the address of worker 0"));
}

constexpr uint64_t kClara = 103;

class StagesAdmission : public AdmissionTest {
 protected:
  StagesAdmission() : AdmissionTest("strategy = sync\n") {
    options_.job.model = "external";
    options_.job.stages = 2;
    options_.servers = 1;
    options_.workers = 3;
  }
  bool join_with(uint64_t who, int stage) {
    hello(hello_of(who));
    wire::Declare declare = declaration_of(who);
    TensorTable table;
    table.add({.name = "tensor" + std::to_string(stage), .shape = {3000}});
    declare.clear_tensors();
    to_wire(table, declare.mutable_tensors());
    declare.set_group_endpoint("tcp://10.0.0.1:" + std::to_string(7000 + who));
    declare.mutable_own_stage()->set_stage(stage);
    declare.mutable_own_stage()->set_stages(2);
    declare.mutable_own_stage()->set_port(9000);
    return AdmissionTest::declare(declare).admitted;
  }
};

TEST_F(StagesAdmission, TheJobWaitsForEachStage) {
  for (const uint64_t who : {kAnna, kBert, kClara}) EXPECT_TRUE(join_with(who, 0));
  EXPECT_EQ(members_.find(kBert)->stage, 0);
  EXPECT_EQ(members_.find(kBert)->port, 9000);
  EXPECT_EQ(members_.find(kClara)->rank, -1) << "two of three have stage 0";
  EXPECT_FALSE(admission().complete());
  EXPECT_EQ(admission().waiting_for(),
            "waiting for members: 1 of 1 server, 3 of 3 workers, stage 1 lacks 1 worker");
  EXPECT_TRUE(join_with(50, 1));
  EXPECT_EQ(members_.find(50)->rank, 2);
  EXPECT_TRUE(admission().complete());
  EXPECT_FALSE(join_with(51, 2));
}

TEST_F(StagesAdmission, AStageWithoutWorkersIsForgotten) {
  EXPECT_TRUE(join_with(kAnna, 0));
  EXPECT_TRUE(join_with(kBert, 0));
  EXPECT_TRUE(join_with(kClara, 1));
  EXPECT_TRUE(admission().complete());
  const MemberInfo gone = *members_.find(kClara);
  members_.remove(kClara);
  admission().forget(gone);
  EXPECT_FALSE(admission().declarations().complete());
  EXPECT_FALSE(admission().has_quorum());
}

}  // namespace
}  // namespace pushpull
