#include "ps/run/job_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ps/job_driver_fixture.h"

namespace pushpull {
namespace {

TEST_F(JobDriverTest, StartsWhenAllMembersHaveJoined) {
  make();
  turn();
  EXPECT_EQ(started_, 0);
  join();
  EXPECT_EQ(started_, 1);
  ASSERT_EQ(shards_.size(), 1U);
  EXPECT_EQ(shards_[0].endpoint, "tcp://head:1");
  EXPECT_NE(data_.server(), nullptr) << "the server in this process serves at once";
  EXPECT_THAT(lines_, HasSubstr("training starts: 3000 parameters in 3 slices, steps 0 to 10"));
}

TEST_F(JobDriverTest, MissingMembersAreNamedAndTheWaitIsBounded) {
  make("", 20.0);
  for (int i = 0; i < 1200; ++i) turn();
  EXPECT_THAT(lines_, HasSubstr("0 of 1 worker"));
  EXPECT_TRUE(driver_->serves());
  for (int i = 0; i < 3000; ++i) turn();
  EXPECT_FALSE(driver_->serves());
  EXPECT_EQ(driver_->exit_code(), 4);
  EXPECT_THAT(driver_->coordinator().failure_text(), HasSubstr("--join-timeout"));
}

TEST_F(JobDriverTest, ServerThatSendsNoWeightsIsNamedAndTheWaitIsBounded) {
  make("progress-timeout = 25\nheartbeat-timeout = 3600\n");
  join();  // the server in this process answers nothing in this test
  report_wait();
  for (int i = 0; i < 11; ++i) turn(1000);
  EXPECT_THAT(lines_, HasSubstr("server 0 has waited 10.0 s for server 0 (head, pid 1) to hand "
                                "over the weights of step 0"));
  EXPECT_TRUE(driver_->serves());
  for (int i = 0; i < 15; ++i) turn(1000);
  EXPECT_FALSE(driver_->serves());
  EXPECT_EQ(driver_->exit_code(), 4);
  EXPECT_THAT(driver_->coordinator().failure_text(), HasSubstr("(progress-timeout = 25.0)"));
}

TEST_F(JobDriverTest, HangingDiskEndsTheJob) {
  make("progress-timeout = 25\nheartbeat-timeout = 3600\n");
  join();
  report_wait();
  exchange_with_shards();
  ASSERT_TRUE(driver_->coordinator().training()->snapshots().busy());
  for (int i = 0; i < 27; ++i) turn(1000);
  EXPECT_THAT(lines_, HasSubstr("s for the disk to write the weights of step 0"));
  EXPECT_FALSE(driver_->serves());
  EXPECT_EQ(driver_->exit_code(), 8);
  EXPECT_TRUE(driver_->transfer_overdue(now()));
}

TEST_F(JobDriverTest, InitialWeightsAreHashedOnce) {
  make();
  join();
  exchange_with_shards();
  EXPECT_EQ(hashed_, std::vector<int64_t>{0});
  EXPECT_TRUE(driver_->coordinator().training()->snapshots().busy());
  driver_->on_written(now(), {0, "abc", nullptr});
  EXPECT_FALSE(driver_->coordinator().training()->snapshots().busy());
  exchange_with_shards();
  EXPECT_EQ(hashed_.size(), 1U);
}

TEST_F(JobDriverTest, LoadedWeightsReachTheServer) {
  auto start = std::make_shared<FlatState>();
  start->weights.assign(3000, 2.0F);
  start_ = start;
  make();
  join();
  EXPECT_FALSE(data_.server()->ready());
  exchange_with_shards();
  EXPECT_TRUE(data_.server()->ready());
}

// A run of 3 steps that starts from the checkpoint of its end, of a job with these keys.
class RunAtItsEnd : public JobDriverTest, public testing::WithParamInterface<const char*> {};

TEST_P(RunAtItsEnd, OnlyEvaluates) {
  make(std::string("steps = 3\n") + GetParam());
  auto start = std::make_shared<FlatState>();
  start->step = 3;
  start->updates = 3;
  start->weights.assign(3000, 2.0F);
  start_ = start;
  join();
  exchange_with_shards();
  ASSERT_EQ(hashed_, std::vector<int64_t>{3});
  EXPECT_TRUE(written_.empty()) << "its checkpoint is there";
  driver_->on_written(now(), {3, "last", nullptr});
  turn();
  EXPECT_EQ(driver_->coordinator().phase(), wire::PHASE_FINISHING);
  leave_when_done();
  ASSERT_EQ(summaries_.size(), 1U);
  EXPECT_EQ(summaries_[0].end_step, 3);
  EXPECT_EQ(summaries_[0].weights_sha256, "last");
}

INSTANTIATE_TEST_SUITE_P(Strategies, RunAtItsEnd,
                         testing::Values("", "strategy = async\n", "strategy = ssp:1\n",
                                         "strategy = local:2\n", "eval-every = 2\n"));

TEST_F(JobDriverTest, UnreadableStartEndsTheJob) {
  make();
  start_error_ = "[resume] damaged";
  EXPECT_THROW(join(), Error);
  driver_->fail(ErrorCode::kData, start_error_);
  turn();
  EXPECT_FALSE(driver_->serves());
  EXPECT_EQ(driver_->exit_code(), 3);
  EXPECT_FALSE(driver_->over()) << "the worker hears of it first";
}

TEST_F(JobDriverTest, FullDiskIsThrownByItsEvent) {
  make();
  join();
  exchange_with_shards();
  const auto error = std::make_exception_ptr(Error(ErrorCode::kIo, "[checkpoint] disk full"));
  EXPECT_THROW(driver_->on_written(now(), {0, "", error}), Error);
}

std::exception_ptr full_disk() {
  return std::make_exception_ptr(Error(ErrorCode::kIo, "[file] cannot write c/x: full"));
}

TEST_F(JobDriverTest, FailedCheckpointIsSkippedAndALaterOneCounts) {
  train_one_worker("steps = 3\ncheckpoint-every = 1\non-checkpoint-failure = continue\n");
  finish_step(0, full_disk());
  EXPECT_THAT(lines_, HasSubstr("[file] cannot write c/x: full; the checkpoint of step 1 is lost, "
                                "training goes on (on-checkpoint-failure = continue): there is no "
                                "checkpoint of this run on disk"));
  finish_step(1, nullptr);
  finish_step(2, nullptr);
  EXPECT_EQ(written_, (std::vector<int64_t>{1, 2, 3}));
  leave_when_done();
  ASSERT_EQ(summaries_.size(), 1U);
  EXPECT_EQ(summaries_[0].checkpoints_failed, 1);
  EXPECT_EQ(driver_->end_failure(), "");
  EXPECT_EQ(driver_->exit_code(), 0);
}

TEST_F(JobDriverTest, UnwritableLastCheckpointGivesASummaryAndCodeEight) {
  train_one_worker("steps = 3\ncheckpoint-every = 2\non-checkpoint-failure = continue\n");
  finish_step(0, nullptr);
  finish_step(1, nullptr);
  finish_step(2, full_disk());
  leave_when_done();
  ASSERT_EQ(summaries_.size(), 1U);
  EXPECT_EQ(summaries_[0].checkpoints_failed, 1);
  EXPECT_EQ(summaries_[0].weights_sha256, "of step 3");
  EXPECT_EQ(driver_->end_failure(),
            "[file] cannot write c/x: full; the checkpoint of step 3 is lost, the last one: the "
            "newest checkpoint on disk is that of step 2; make room, and resume from it");
  EXPECT_EQ(driver_->exit_code(), 8);
}

TEST_F(JobDriverTest, OtherFailuresEndAJobThatContinuesWithoutCheckpoints) {
  make("on-checkpoint-failure = continue\n");
  join();
  exchange_with_shards();
  const auto error = std::make_exception_ptr(Error(ErrorCode::kInternal, "[internal] memory"));
  EXPECT_THROW(driver_->on_written(now(), {0, "", error}), Error);
}

TEST_F(JobDriverTest, JobRunsFromItsFirstStepToItsSummary) {
  make("steps = 1\n");
  join();
  exchange_with_shards();
  driver_->on_written(now(), {0, "first", nullptr});
  const ServerSetup setup = server_setup(job_of("steps = 1\nslice-bytes = 4096\n"), 3000, 0, 1, 1);
  data_.take("anna", push_message(setup, kAnna, 1, 0, {0, 4}, 1.0F));
  data_.work();
  driver_->on_data_taken(now());
  turn();
  exchange_with_shards();
  EXPECT_EQ(written_, std::vector<int64_t>{1});
  driver_->on_written(now(), {1, "last", nullptr});
  turn();
  EXPECT_EQ(driver_->coordinator().phase(), wire::PHASE_FINISHING);
  Message message;
  message.header.mutable_heartbeat()->set_incarnation(kAnna);
  message.header.mutable_heartbeat()->set_state_version(1'000);
  message.header.set_term_id(kTermId);
  driver_->on_message(now(), "anna", message);
  turn();
  ASSERT_EQ(summaries_.size(), 1U);
  EXPECT_EQ(summaries_[0].end_step, 1);
  EXPECT_EQ(summaries_[0].initial_weights_sha256, "first");
  EXPECT_EQ(summaries_[0].weights_sha256, "last");
  EXPECT_EQ(summaries_[0].slices_per_server, std::vector<int64_t>{3});
  ASSERT_EQ(ends_.size(), 1U);
  EXPECT_TRUE(ends_[0].finished);
  EXPECT_EQ(ends_[0].term_id, kTermId);
  EXPECT_EQ(ends_[0].exit_code, 0);
  EXPECT_EQ(ends_[0].members, 1);
  EXPECT_FALSE(moments_.empty());
  message.header.mutable_leave()->set_incarnation(kAnna);
  message.header.set_term_id(kTermId);
  driver_->on_message(now(), "anna", message);
  turn();
  EXPECT_TRUE(driver_->over());
  EXPECT_EQ(driver_->exit_code(), 0);
}

TEST_F(JobDriverTest, StatusQueriesAreAnsweredInEveryPhase) {
  const auto ask = [this] {
    now_ += 1000;
    turn();
    sent_.clear();
    Message message;
    message.header.mutable_status_request()->set_number(5);
    EXPECT_FALSE(driver_->on_message(now(), "somebody", message));
    turn();
    const auto is_answer = [](const auto& out) { return out.second.header.has_status_reply(); };
    EXPECT_EQ(std::count_if(sent_.begin(), sent_.end(), is_answer), 1);
    for (const auto& [to, out] : sent_) EXPECT_EQ(to == "somebody", is_answer(std::pair{to, out}));
    const auto found = std::find_if(sent_.begin(), sent_.end(), is_answer);
    return found == sent_.end() ? "" : found->second.header.status_reply().json();
  };
  make();
  EXPECT_THAT(ask(), HasSubstr("waiting for members: 1 of 1 server, 0 of 1 worker"));
  EXPECT_EQ(driver_->coordinator().members().all().size(), 1U) << "a client that asks is no member";
  join();
  EXPECT_THAT(ask(), HasSubstr(R"("phase":"training","strategy":"sync")"));
  driver_->fail(ErrorCode::kData, "[data] gone");
  EXPECT_THAT(ask(), HasSubstr(R"("phase":"failed")"));
}

TEST_F(JobDriverTest, MembersFileIsWrittenBeforeTheFirstStepAndAtTheEnd) {
  make();
  turn();
  ASSERT_EQ(members_.size(), 1U);
  EXPECT_EQ(members_[0].find("\"worker\""), std::string::npos);
  join();
  turn(60);
  EXPECT_THAT(members_.back(), HasSubstr(R"("role":"worker","rank":0)"));
  driver_->fail(ErrorCode::kData, "[data] gone");
  turn(60);
  Message message;
  message.header.mutable_leave()->set_incarnation(kAnna);
  driver_->on_message(now(), "anna", message);
  turn(60);
  turn(1000);
  EXPECT_THAT(members_.back(), HasSubstr(R"("role":"worker","rank":0)"))
      << "the members at the end";
}

TEST_F(JobDriverTest, StatusIsRenewedEachSecondUnasked) {
  make();
  turn();
  EXPECT_THAT(status_, HasSubstr(R"("phase":"gathering")"));
  join();
  turn(60);
  EXPECT_THAT(status_, HasSubstr(R"("phase":"training")"));
  EXPECT_THAT(status_, HasSubstr(R"("role":"worker","rank":0)"));
  for (int i = 0; i < 3; ++i) {
    status_.clear();
    turn(1000);
    EXPECT_THAT(status_, HasSubstr(R"("up_seconds":)"));
  }
  driver_->fail(ErrorCode::kData, "[data] gone");
  turn(60);
  EXPECT_THAT(status_, HasSubstr(R"("failure":"[data] gone)"));
}

TEST_F(JobDriverTest, ClosedConnectionBecomesALossLater) {
  make("on-worker-loss = wait\n");
  join();
  closed_ = true;
  for (int i = 0; i < 600; ++i) turn();
  EXPECT_THAT(lines_, HasSubstr("its connection closed"));
}

TEST_F(JobDriverTest, LostServerBeginsATermThatStartsWhenAllAreBack) {
  make("on-server-loss = restart\n", 600.0, 2);
  join_server();
  join();
  EXPECT_EQ(started_, 1);
  ASSERT_NE(data_.server(), nullptr);
  sent_.clear();

  leave("bert", kBert, "it was ended by SIGTERM");
  turn();
  EXPECT_EQ(lost_, std::vector<int64_t>{2});
  EXPECT_EQ(terms_, std::vector<int64_t>{2});
  EXPECT_THAT(lines_, HasSubstr("all members go back to the newest checkpoint"));
  EXPECT_EQ(data_.server(), nullptr) << "its weights belong to the old term";
  EXPECT_EQ(driver_->coordinator().phase(), wire::PHASE_GATHERING);
  const std::vector<wire::Header> sent = messages_to("anna");
  ASSERT_FALSE(sent.empty());
  ASSERT_TRUE(sent.back().has_job_text());
  const uint64_t term_id = kTermId + 2;
  EXPECT_EQ(sent.back().job_text().term_id(), term_id);
  EXPECT_EQ(sent.back().job_text().term(), 2);
  EXPECT_EQ(sent.back().job_text().run_id(), kTermId);

  report_wait();  // a message of the old term: the worker has not heard of the new one
  const std::vector<wire::Header> again = messages_to("anna");
  ASSERT_EQ(again.size(), 1U);
  EXPECT_TRUE(again.front().has_job_text());

  join(term_id);
  EXPECT_EQ(started_, 1) << "a server is still missing";
  EXPECT_THAT(members_.back(), HasSubstr("it was ended by SIGTERM")) << "of the term before";
  join_server(term_id);
  turn();
  turn();
  EXPECT_EQ(started_, 2);
  EXPECT_EQ(history_.recoveries, 1);
  EXPECT_EQ(driver_->coordinator().term_id(), term_id);
  EXPECT_NE(data_.server(), nullptr);
  moments_.clear();
  turn(250);
  ASSERT_EQ(moments_.size(), 1U);
  EXPECT_EQ(moments_[0].lost, std::vector<std::string>{"server 1"});
  EXPECT_EQ(moments_[0].back_to_step, 0);
  turn(250);
  EXPECT_TRUE(moments_.back().lost.empty()) << "once";
}

TEST_F(JobDriverTest, NextTermStartsOnceTheDiskIsDoneWithTheEarlierOne) {
  table_ = table_of(1000);  // one slice, at server 0
  make("on-server-loss = restart\n", 600.0, 2);
  join_server();
  join();
  exchange_with_shards();
  ASSERT_EQ(hashed_.size(), 1U) << "the disk works on it";
  leave("bert", kBert);
  turn();
  EXPECT_EQ(terms_, std::vector<int64_t>{2});
  join_server(kTermId + 2);
  join(kTermId + 2);
  turn();
  EXPECT_EQ(started_, 1);
  driver_->on_written(now(), {0, "of the earlier term", nullptr});
  turn();
  turn();
  EXPECT_EQ(started_, 2);
  exchange_with_shards();
  EXPECT_EQ(hashed_.size(), 2U);
}

TEST_F(JobDriverTest, WorkerThatDeclaresOtherDataFirstInTheNextTermIsRefused) {
  make("", 600.0, 2);
  join_server();
  join();
  EXPECT_EQ(started_, 1);
  leave("bert", kBert);
  turn();
  turn();  // term.json has the term
  const uint64_t term_id = kTermId + 2;
  Message message;
  message.header.set_term_id(term_id);
  message.header.mutable_hello()->set_role(wire::ROLE_WORKER);
  message.header.mutable_hello()->set_incarnation(99);
  driver_->on_message(now(), "carl", message);
  wire::Declare* declare = message.header.mutable_declare();
  declare->set_incarnation(99);
  to_wire(table_of(3000), declare->mutable_tensors());
  declare->set_train_samples(63);
  driver_->on_message(now(), "carl", message);
  turn();
  const std::vector<wire::Header> answers = messages_to("carl");
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.back().refused().code(), static_cast<int>(ErrorCode::kProtocol));
  EXPECT_THAT(answers.back().refused().text(), HasSubstr("its data differ"));

  join(term_id);
  join_server(term_id);
  turn();
  turn();
  EXPECT_EQ(started_, 2);
}

TEST_F(JobDriverTest, AMemberThatDoesNotComeBackInTheNextTermIsReportedAsLost) {
  make("heartbeat-timeout = 3\n", 600.0, 2);
  join_server();
  join();
  leave("bert", kBert);
  turn();
  turn();  // term.json has the term
  lost_.clear();
  turn(3000);
  EXPECT_TRUE(lost_.empty()) << "anna may still come";
  turn(50);
  EXPECT_EQ(lost_, std::vector<int64_t>{0}) << "anna's process id";
  turn(3000);
  EXPECT_EQ(lost_.size(), 1U) << "once";
}

TEST_F(JobDriverTest, ServerThatDoesNotReturnEndsTheJob) {
  make("replacement-timeout = 3\n", 600.0, 2);
  join_server();
  join();
  leave("bert", kBert);
  turn();
  join(kTermId + 2);
  turn(2900);
  EXPECT_EQ(driver_->coordinator().phase(), wire::PHASE_GATHERING);
  turn(200);
  EXPECT_EQ(driver_->coordinator().phase(), wire::PHASE_FAILED);
  EXPECT_THAT(driver_->coordinator().failure_text(),
              HasSubstr("not all members came back within replacement-timeout = 3.0 s: waiting for "
                        "members: 1 of 2 servers"));
}

TEST_F(JobDriverTest, LostServerEndsTheJobUnderAbort) {
  make("on-server-loss = abort\n", 600.0, 2);
  join_server();
  join();
  leave("bert", kBert);
  turn();
  EXPECT_TRUE(terms_.empty());
  EXPECT_TRUE(lost_.empty()) << "no process must take its place";
  EXPECT_EQ(driver_->coordinator().phase(), wire::PHASE_FAILED);
}

}  // namespace
}  // namespace pushpull
