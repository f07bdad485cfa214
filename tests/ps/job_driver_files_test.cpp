// Tests of jobs whose file system hangs, at their coordinator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ps/job_driver_fixture.h"

namespace pushpull {
namespace {

class HangingFiles : public JobDriverTest {
 protected:
  std::string failure() const { return driver_->coordinator().failure_text(); }
  wire::Phase phase() const { return driver_->coordinator().phase(); }
  // Lets time pass while all members are alive.
  void pass(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      report_wait();
      turn(1000);
    }
  }
  void lose_server() { leave("bert", kBert); }
  // Trains until only the summary is missing.
  void train_to_the_end() {
    train_one_worker("steps = 1\nprogress-timeout = 25\nheartbeat-timeout = 3600\n");
    finish_step(0, nullptr);
    file_system_hangs_ = true;
    leave_when_done();
    ASSERT_EQ(phase(), wire::PHASE_FINISHING);
    ASSERT_EQ(summaries_.size(), 1U);
  }
};

TEST_F(HangingFiles, StartIsNamedAndEndsTheJobWithCodeEight) {
  file_system_hangs_ = true;
  make("progress-timeout = 25\nheartbeat-timeout = 3600\n");
  join();
  sent_.clear();
  pass(11);
  EXPECT_EQ(started_, 0);
  EXPECT_THAT(lines_, HasSubstr("server 0 has waited 10.0 s for the file system to read "
                                "out/checkpoints"));
  EXPECT_FALSE(messages_to("anna").empty()) << "members hear of the coordinator meanwhile";
  pass(15);
  EXPECT_EQ(phase(), wire::PHASE_FAILED);
  EXPECT_EQ(driver_->exit_code(), 8);
  EXPECT_THAT(failure(), HasSubstr("[out] server 0 has waited 25"));
  EXPECT_THAT(failure(), HasSubstr("(progress-timeout = 25.0)"));
}

TEST_F(HangingFiles, StartContinuesWhenTheFileSystemAnswers) {
  file_system_hangs_ = true;
  make("heartbeat-timeout = 3600\n");
  join();
  pass(300);
  EXPECT_EQ(started_, 0);
  file_system_hangs_ = false;
  turn();
  EXPECT_EQ(started_, 1);
}

TEST_F(HangingFiles, SignalAtTheStartEndsTheJobAtOnce) {
  file_system_hangs_ = true;
  make();
  join();
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  EXPECT_EQ(phase(), wire::PHASE_FAILED);
  EXPECT_EQ(driver_->exit_code(), 143);
  EXPECT_THAT(failure(), HasSubstr("[job] ended by SIGTERM"));
  EXPECT_THAT(failure(), HasSubstr("for the file system to read out/checkpoints"));
}

TEST_F(HangingFiles, MemberLostWhileFilesAreOpenedIsWaitedForAndNothingIsDoneTwice) {
  make("on-worker-loss = wait\n");
  file_system_hangs_ = true;
  join();
  file_system_hangs_ = false;
  leave("anna", kAnna);
  turn();
  EXPECT_EQ(started_, 0);
  EXPECT_EQ(phase(), wire::PHASE_GATHERING);
  EXPECT_EQ(file_, "read out/checkpoints") << "an earlier run's files stay until all are there";
  join();
  EXPECT_EQ(started_, 1);
}

TEST_F(HangingFiles, TermBeginsOnlyWhenTermJsonIsWritten) {
  make("heartbeat-timeout = 3600\n", 600.0, 2);
  join_server();
  join();
  ASSERT_EQ(started_, 1);
  file_system_hangs_ = true;
  lose_server();
  turn();
  sent_.clear();
  pass(11);
  EXPECT_EQ(saved_terms_, std::vector<int64_t>{2});
  EXPECT_TRUE(terms_.empty()) << "no member hears of a term that is not on disk";
  EXPECT_THAT(lines_, HasSubstr("for the file system to write out/term.json"));
  const std::vector<wire::Header> sent = messages_to("anna");
  ASSERT_FALSE(sent.empty());
  ASSERT_TRUE(sent.back().has_state());
  ASSERT_EQ(sent.back().state().places().absent_size(), 1)
      << "workers wait for the lost server without their own deadline";
  EXPECT_EQ(sent.back().state().places().absent(0), 1);

  join_server();
  const std::vector<wire::Header> answers = messages_to("bert");
  ASSERT_EQ(answers.size(), 0U);
  turn();
  ASSERT_FALSE(driver_->coordinator().members().find_rank(wire::ROLE_SERVER, 1))
      << "no server joins the old term";
  file_system_hangs_ = false;
  turn();
  EXPECT_EQ(terms_, std::vector<int64_t>{2});
  EXPECT_EQ(phase(), wire::PHASE_GATHERING);
  EXPECT_EQ(saved_terms_.size(), 1U);
}

TEST_F(HangingFiles, TermThatCannotBeSavedEndsTheJobWithItsFileNamed) {
  make("progress-timeout = 25\nheartbeat-timeout = 3600\n", 600.0, 2);
  join_server();
  join();
  file_system_hangs_ = true;
  lose_server();
  pass(27);
  EXPECT_EQ(phase(), wire::PHASE_FAILED);
  EXPECT_EQ(driver_->exit_code(), 8);
  EXPECT_THAT(failure(), HasSubstr("for the file system to write out/term.json"));
  EXPECT_TRUE(driver_->transfer_overdue(now())) << "the process does not wait longer";
}

TEST_F(HangingFiles, ServerThatWaitsForATermHearsWhyTheJobFails) {
  make("progress-timeout = 25\nheartbeat-timeout = 3600\n", 600.0, 2);
  join_server();
  join();
  file_system_hangs_ = true;
  lose_server();
  turn();
  join_server();
  turn();
  sent_.clear();
  pass(24);
  EXPECT_TRUE(messages_to("bert").empty()) << "the end is not known";
  pass(6);
  const std::vector<wire::Header> answers = messages_to("bert");
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].refused().code(), 8);
  EXPECT_THAT(answers[0].refused().text(), HasSubstr("for the file system to write out/term.json"));
}

TEST_F(HangingFiles, SignalAtATermsBeginEndsTheJobAfterItsGrace) {
  make("heartbeat-timeout = 3600\n", 600.0, 2);
  join_server();
  join();
  file_system_hangs_ = true;
  lose_server();
  turn();
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  pass(22);
  EXPECT_NE(phase(), wire::PHASE_FAILED);
  pass(2);
  EXPECT_EQ(phase(), wire::PHASE_FAILED);
  EXPECT_EQ(driver_->exit_code(), 143);
  EXPECT_THAT(failure(), HasSubstr("for the file system to write out/term.json"));
}

TEST_F(HangingFiles, FarewellComesAfterTheSummary) {
  train_to_the_end();
  pass(11);
  EXPECT_EQ(phase(), wire::PHASE_FINISHING);
  EXPECT_THAT(lines_, HasSubstr("for the file system to write out/summary.json"));
  file_system_hangs_ = false;
  turn();
  EXPECT_EQ(phase(), wire::PHASE_FINISHED);
  EXPECT_EQ(summaries_.size(), 1U);
  EXPECT_EQ(driver_->exit_code(), 0);
}

TEST_F(HangingFiles, SummaryThatIsNotWrittenEndsTheJobWithCodeEight) {
  train_to_the_end();
  pass(27);
  EXPECT_EQ(phase(), wire::PHASE_FAILED);
  EXPECT_EQ(driver_->exit_code(), 8);
  EXPECT_THAT(failure(), HasSubstr("for the file system to write out/summary.json"));
}

TEST_F(HangingFiles, SignalAtTheSummaryEndsTheJobAfterItsGrace) {
  train_to_the_end();
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  EXPECT_EQ(phase(), wire::PHASE_FINISHING);
  pass(22);
  EXPECT_EQ(phase(), wire::PHASE_FINISHING);
  pass(2);
  EXPECT_EQ(phase(), wire::PHASE_FAILED);
  EXPECT_EQ(driver_->exit_code(), 75);
  EXPECT_THAT(failure(), HasSubstr("for the file system to write out/summary.json; the newest "
                                   "checkpoint is that of step"));
  EXPECT_THAT(failure(), HasSubstr("no step is lost"));
}

TEST_F(HangingFiles, SignalNearTheEndChangesNothingIfTheFileSystemAnswers) {
  train_to_the_end();
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  file_system_hangs_ = false;
  turn();
  EXPECT_EQ(phase(), wire::PHASE_FINISHED);
  EXPECT_EQ(driver_->exit_code(), 0);
}

TEST_F(HangingFiles, FailureReachesMembersOnceTermJsonHasIt) {
  make();
  join();
  file_system_hangs_ = true;
  sent_.clear();
  driver_->fail(ErrorCode::kFailed, "out of luck");
  turn();
  ASSERT_EQ(ends_.size(), 1U);
  EXPECT_FALSE(ends_[0].finished);
  EXPECT_EQ(ends_[0].code, 1);
  EXPECT_THAT(ends_[0].text, HasSubstr("out of luck"));
  pass(1);
  EXPECT_TRUE(messages_to("anna").empty());
  EXPECT_FALSE(driver_->coordinator().end_announced());
  file_system_hangs_ = false;
  turn();
  EXPECT_TRUE(driver_->coordinator().end_announced());
  turn();
  const std::vector<wire::Header> sent = messages_to("anna");
  ASSERT_FALSE(sent.empty());
  EXPECT_EQ(sent[0].state().phase(), wire::PHASE_FAILED);
  EXPECT_EQ(ends_.size(), 1U);
}

TEST_F(HangingFiles, FailureReachesMembersAfterTwoSecondsWithoutTermJson) {
  make();
  join();
  file_system_hangs_ = true;
  sent_.clear();
  driver_->fail(ErrorCode::kFailed, "out of luck");
  pass(5);
  EXPECT_TRUE(file_work_) << "it still hangs";
  const std::vector<wire::Header> sent = messages_to("anna");
  ASSERT_FALSE(sent.empty());
  EXPECT_EQ(sent[0].state().phase(), wire::PHASE_FAILED);
  EXPECT_FALSE(driver_->over()) << "the member has its time to leave";
}

TEST_F(HangingFiles, FailureWhileTheEndIsSavedIsSavedNext) {
  train_to_the_end();
  driver_->on_files(now(), *std::exchange(file_work_, {}));
  ASSERT_EQ(ends_.size(), 1U);
  EXPECT_TRUE(ends_[0].finished);
  EXPECT_EQ(phase(), wire::PHASE_FINISHING) << "members leave once term.json has the end";
  driver_->fail(ErrorCode::kFailed, "out of luck");
  driver_->on_files(now(), *std::exchange(file_work_, {}));
  EXPECT_FALSE(driver_->coordinator().end_announced());
  file_system_hangs_ = false;
  turn();
  ASSERT_EQ(ends_.size(), 2U);
  EXPECT_FALSE(ends_[1].finished);
  EXPECT_TRUE(driver_->coordinator().end_announced());
}

}  // namespace
}  // namespace pushpull
