#include "ps/coordinator/job_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/net/tensor_wire.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

// A job of one worker and this process's server, whose outside world the test plays.
class JobDriverTest : public testing::Test, public JobEffects, public ServerParts {
 protected:
  void make(const std::string& keys = "", double join_timeout_s = 600.0, int servers = 1) {
    CoordinatorOptions options;
    options.job = job_of(keys + "slice-bytes = 4096\n");
    options.run = kRun;
    options.first_run = kRun;
    options.servers = servers;
    options.grant_key = kGrantKey;
    options.self.incarnation = 1;
    options.self.host = "head";
    options.self.pid = 1;
    options.self.data_endpoint = "tcp://head:1";
    driver_ = std::make_unique<JobDriver>(options, join_timeout_s, data_, *this);
  }
  void turn(int64_t ms = 5) {
    now_ += ms;
    driver_->on_turn(now());
  }
  Now now() const { return {now_, now_}; }
  // The worker says Hello and declares.
  void join(uint64_t run = kRun) {
    Message message;
    message.header.set_run(run);
    message.header.mutable_hello()->set_role(wire::ROLE_WORKER);
    message.header.mutable_hello()->set_incarnation(kAnna);
    EXPECT_FALSE(driver_->on_message(now(), "anna", message));
    wire::Declare* declare = message.header.mutable_declare();
    declare->set_incarnation(kAnna);
    to_wire(table_of(3000), declare->mutable_tensors());
    declare->set_train_samples(64);
    EXPECT_FALSE(driver_->on_message(now(), "anna", message));
    turn();  // starts
    turn();  // tells everybody
  }
  void join_server(uint64_t run = kRun) {
    Message message;
    message.header.set_run(run);
    wire::Hello* hello = message.header.mutable_hello();
    hello->set_role(wire::ROLE_SERVER);
    hello->set_incarnation(kBert);
    hello->set_data_endpoint("tcp://node:2");
    EXPECT_FALSE(driver_->on_message(now(), "bert", message));
  }
  // What was sent to a member, since the last call.
  std::vector<wire::Header> told(const PeerId& peer) {
    std::vector<wire::Header> out;
    for (const auto& [to, message] : std::exchange(sent_, {})) {
      if (to == peer) out.push_back(message.header);
    }
    return out;
  }
  void says_that_it_waits() {
    Message message;
    message.header.set_run(kRun);
    message.header.mutable_heartbeat()->set_incarnation(kAnna);
    message.header.mutable_heartbeat()->mutable_stats()->set_waits_for("weights");
    EXPECT_FALSE(driver_->on_message(now(), "anna", message));
  }
  // The server in this process answers the driver's own requests.
  void exchange_with_shards() {
    for (int i = 0; i < 5; ++i) {
      for (const Message& message : std::exchange(to_shards_, {})) {
        data_.take("driver", message);
      }
      data_.work();
      for (const Outgoing& out : data_.take_outgoing())
        driver_->on_shard_message(now(), out.message);
      turn();
    }
  }

  // The job has begun, and its first weights are hashed.
  void train_one_worker(const std::string& keys) {
    keys_ = keys;
    make(keys);
    join();
    exchange_with_shards();
    driver_->on_written(now(), {0, "first", nullptr});
  }
  // The worker pushes the step. error: of the checkpoint after it, where one is due.
  void finish_step(int64_t step, const std::exception_ptr& error) {
    const ServerSetup setup = server_setup(job_of(keys_ + "slice-bytes = 4096\n"), 3000, 0, 1, 1);
    data_.take("anna", push_message(setup, kAnna, step + 1, step, {0, 4}, 1.0F));
    data_.work();
    driver_->on_data_taken(now());
    turn();
    exchange_with_shards();
    if (written_.empty() || written_.back() != step + 1) return;
    driver_->on_written(now(), {step + 1, "of step " + std::to_string(step + 1), error});
    turn();
  }
  // The worker has heard that the job is done.
  void leave_when_done() {
    Message message;
    message.header.mutable_heartbeat()->set_incarnation(kAnna);
    message.header.mutable_heartbeat()->set_state_version(1'000);
    message.header.set_run(kRun);
    driver_->on_message(now(), "anna", message);
    turn();
  }

  bool send(const PeerId& to, const Message& message) override {
    sent_.push_back({to, message});
    return !closed_;
  }
  void connect_shards(const std::vector<std::string>& endpoints) override { shards_ = endpoints; }
  void send_to_shard(int server, const Message& message) override {
    EXPECT_LT(server, std::ssize(shards_));
    to_shards_.push_back(message);
  }
  StartPoint load_start(const Declaration& /*declaration*/) override {
    if (!start_error_.empty()) throw Error(ErrorCode::kData, start_error_);
    return {start_, ""};
  }
  TermIds begin_term(int64_t term, const RunHistory& history) override {
    terms_.push_back(term);
    history_ = history;
    return {kRun + static_cast<uint64_t>(term), "another key"};
  }
  void started(const Coordinator& coordinator, const StartPoint& /*start*/,
               const RunHistory& history) override {
    history_ = history;
    EXPECT_EQ(coordinator.phase(), wire::PHASE_TRAINING);
    ++started_;
  }
  void hash_weights(GatheredState snapshot) override { hashed_.push_back(snapshot.step); }
  void write_checkpoint(GatheredState /*snapshot*/, CheckpointState state, bool hash) override {
    written_.push_back(state.step);
    EXPECT_EQ(hash, state.step == driver_->coordinator().barriers().end_step);
  }
  void show_line(const std::string& line) override { lines_ += line + "\n"; }
  void show_moment(const Moment& moment) override { moments_.push_back(moment); }
  void show_members(const std::string& json) override { members_.push_back(json); }
  void write_summary(const Coordinator& /*coordinator*/, Summary summary) override {
    summaries_.push_back(std::move(summary));
  }
  std::unique_ptr<Server> make_server(const JobView& /*job*/, ServerSetup setup,
                                      TrainingObserver* observer) override {
    EXPECT_NE(observer, nullptr);
    return std::make_unique<Server>(std::move(setup), observer);
  }

  int64_t now_ = 1'000'000;
  ServedData data_{*this};
  std::unique_ptr<JobDriver> driver_;
  std::vector<std::pair<PeerId, Message>> sent_;
  std::vector<Message> to_shards_;
  std::vector<std::string> shards_;
  std::shared_ptr<const FlatState> start_;
  std::string start_error_;
  std::string lines_;
  std::string keys_;
  std::vector<int64_t> hashed_;
  std::vector<int64_t> written_;
  std::vector<Moment> moments_;
  std::vector<std::string> members_;
  std::vector<Summary> summaries_;
  int started_ = 0;
  std::vector<int64_t> terms_;
  RunHistory history_;
  bool closed_ = false;
};

TEST_F(JobDriverTest, StartsWhenEverybodyIsThere) {
  make();
  turn();
  EXPECT_EQ(started_, 0);
  join();
  EXPECT_EQ(started_, 1);
  EXPECT_EQ(shards_, std::vector<std::string>{"tcp://head:1"});
  EXPECT_NE(data_.server(), nullptr) << "its own server serves at once";
  EXPECT_THAT(lines_, HasSubstr("training starts: 3000 parameters in 3 slices, steps 0 to 10"));
}

TEST_F(JobDriverTest, WhoeverIsWaitedForIsNamedAndNotForEver) {
  make("", 20.0);
  for (int i = 0; i < 1200; ++i) turn();
  EXPECT_THAT(lines_, HasSubstr("0 of 1 worker"));
  EXPECT_TRUE(driver_->serves());
  for (int i = 0; i < 3000; ++i) turn();
  EXPECT_FALSE(driver_->serves());
  EXPECT_EQ(driver_->exit_code(), 4);
  EXPECT_THAT(driver_->coordinator().failure_text(), HasSubstr("--join-timeout"));
}

TEST_F(JobDriverTest, AServerThatHandsOverNoWeightsIsNamedAndNotWaitedForForEver) {
  make("progress-timeout = 25\nheartbeat-timeout = 3600\n");
  join();  // its own server answers nothing in this test
  says_that_it_waits();
  for (int i = 0; i < 11; ++i) turn(1000);
  EXPECT_THAT(lines_, HasSubstr("server 0 has waited 10.0 s for server 0 (head, pid 1) to hand "
                                "over the weights of step 0"));
  EXPECT_TRUE(driver_->serves());
  for (int i = 0; i < 15; ++i) turn(1000);
  EXPECT_FALSE(driver_->serves());
  EXPECT_EQ(driver_->exit_code(), 4);
  EXPECT_THAT(driver_->coordinator().failure_text(), HasSubstr("(progress-timeout = 25.0)"));
}

TEST_F(JobDriverTest, ADiskThatHangsEndsTheJob) {
  make("progress-timeout = 25\nheartbeat-timeout = 3600\n");
  join();
  says_that_it_waits();
  exchange_with_shards();
  ASSERT_TRUE(driver_->writing());
  for (int i = 0; i < 27; ++i) turn(1000);
  EXPECT_THAT(lines_, HasSubstr("s for the disk to take the weights of step 0"));
  EXPECT_FALSE(driver_->serves());
  EXPECT_EQ(driver_->exit_code(), 8);
  EXPECT_TRUE(driver_->transfer_overdue(now()));
}

TEST_F(JobDriverTest, TheFirstWeightsAreHashedOnce) {
  make();
  join();
  exchange_with_shards();
  EXPECT_EQ(hashed_, std::vector<int64_t>{0});
  EXPECT_TRUE(driver_->writing());
  driver_->on_written(now(), {0, "abc", nullptr});
  EXPECT_FALSE(driver_->writing());
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

TEST_F(JobDriverTest, WhatCannotBeReadComesOutOfTheTurn) {
  make();
  start_error_ = "[resume] damaged";
  EXPECT_THROW(join(), Error);
  driver_->fail(ErrorCode::kData, start_error_);
  turn();
  EXPECT_FALSE(driver_->serves());
  EXPECT_EQ(driver_->exit_code(), 3);
  EXPECT_FALSE(driver_->over()) << "the worker is told first";
}

TEST_F(JobDriverTest, AFullDiskComesOutOfItsEvent) {
  make();
  join();
  exchange_with_shards();
  const auto error = std::make_exception_ptr(Error(ErrorCode::kIo, "[checkpoint] disk full"));
  EXPECT_THROW(driver_->on_written(now(), {0, "", error}), Error);
}

std::exception_ptr full_disk() {
  return std::make_exception_ptr(Error(ErrorCode::kIo, "[file] cannot write c/x: full"));
}

TEST_F(JobDriverTest, ACheckpointThatCannotBeWrittenIsLeftOutAndALaterOneCounts) {
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

TEST_F(JobDriverTest, AnEndThatCannotBeWrittenStillHasItsSummaryAndEndsWithCodeEight) {
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

TEST_F(JobDriverTest, AFailureThatIsNoFilesEndsTheJobThatGoesOnWithoutCheckpoints) {
  make("on-checkpoint-failure = continue\n");
  join();
  exchange_with_shards();
  const auto error = std::make_exception_ptr(Error(ErrorCode::kInternal, "[internal] memory"));
  EXPECT_THROW(driver_->on_written(now(), {0, "", error}), Error);
}

TEST_F(JobDriverTest, AJobGoesFromItsFirstStepToItsSummary) {
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
  message.header.set_run(kRun);
  driver_->on_message(now(), "anna", message);
  turn();
  ASSERT_EQ(summaries_.size(), 1U);
  EXPECT_EQ(summaries_[0].steps, 1);
  EXPECT_EQ(summaries_[0].initial_weights_sha256, "first");
  EXPECT_EQ(summaries_[0].weights_sha256, "last");
  EXPECT_EQ(summaries_[0].slices_per_server, std::vector<int64_t>{3});
  EXPECT_FALSE(moments_.empty());
  message.header.mutable_leave()->set_incarnation(kAnna);
  message.header.set_run(kRun);
  driver_->on_message(now(), "anna", message);
  turn();
  EXPECT_TRUE(driver_->over());
  EXPECT_EQ(driver_->exit_code(), 0);
}

TEST_F(JobDriverTest, BeforeTheFirstStepASignalEndsTheJobAndASecondCtrlCTheProcess) {
  make();
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  EXPECT_FALSE(driver_->serves());
  now_ += 1000;
  EXPECT_FALSE(driver_->on_signal(now(), 15)) << "schedulers repeat it";
  EXPECT_FALSE(driver_->on_signal(now(), 2));
  now_ += 300;
  EXPECT_TRUE(driver_->on_signal(now(), 2));
  EXPECT_EQ(driver_->exit_code(), 143);
}

TEST_F(JobDriverTest, ASignalStopsTheJobAtTheNearestCutWithACheckpoint) {
  make("steps = 10\n");
  join();
  exchange_with_shards();
  driver_->on_written(now(), {0, "first", nullptr});
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  EXPECT_THAT(
      lines_,
      HasSubstr("SIGTERM (server 0 (head, pid 1)): the run stops with a checkpoint at step 2"));
  turn();
  const ServerSetup setup = server_setup(job_of("steps = 10\nslice-bytes = 4096\n"), 3000, 0, 1, 1);
  for (int64_t step = 0; step < 2; ++step) {
    EXPECT_EQ(written_, std::vector<int64_t>{});
    data_.take("anna", push_message(setup, kAnna, step + 1, step, {0, 4}, 1.0F));
    data_.work();
    driver_->on_data_taken(now());
    turn();
    exchange_with_shards();
  }
  EXPECT_EQ(written_, std::vector<int64_t>{2});
  driver_->on_written(now(), {2, "last", nullptr});
  turn(6000);  // the worker reports nothing more
  turn();
  ASSERT_EQ(summaries_.size(), 1U);
  EXPECT_EQ(summaries_[0].steps, 2);
  EXPECT_EQ(summaries_[0].samples, setup.job.global_batch * 2);
  EXPECT_EQ(summaries_[0].weights_sha256, "last");
  EXPECT_EQ(summaries_[0].stopped_by, "SIGTERM (server 0 (head, pid 1))");
  EXPECT_EQ(driver_->exit_code(), 75);
  EXPECT_EQ(driver_->coordinator().failure_code(), ErrorCode::kStopped) << "so members end with it";
}

TEST_F(JobDriverTest, WhereTheCutIsNotReachedWithinTheGraceTheJobEndsAndSaysSo) {
  make("steps = 10\nheartbeat-timeout = 3600\n");
  join();
  exchange_with_shards();
  driver_->on_written(now(), {0, "first", nullptr});
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  turn(EndRequest::kStopMs - 10);
  EXPECT_TRUE(driver_->serves());
  turn(10);
  EXPECT_FALSE(driver_->serves());
  EXPECT_THAT(driver_->coordinator().failure_text(), HasSubstr("within the grace of 23 s"));
  EXPECT_EQ(driver_->exit_code(), 143);
}

TEST_F(JobDriverTest, AWorkerThatIsToldToEndIsLetGoUnlessTheJobStops) {
  for (const bool stops : {false, true}) {
    make("steps = 10\nheartbeat-timeout = 3600\n");
    join(driver_->coordinator().run());
    sent_.clear();
    Message message;
    message.header.set_run(kRun);
    message.header.mutable_heartbeat()->set_incarnation(kAnna);
    message.header.mutable_heartbeat()->set_told_to_end(15);
    EXPECT_FALSE(driver_->on_message(now(), "anna", message));
    const auto let_go = [this] {
      const auto headers = told("anna");
      return std::any_of(headers.begin(), headers.end(),
                         [](const auto& header) { return header.state().let_go(); });
    };
    turn(900);
    EXPECT_FALSE(let_go());
    if (stops) {
      EXPECT_FALSE(driver_->on_signal(now(), 15));
    }
    turn(200);
    turn();
    EXPECT_EQ(let_go(), !stops);
    data_.end_term(kRun);
  }
}

TEST_F(JobDriverTest, AQuestionIsAnsweredInEveryPhaseAndReachesNobodyElse) {
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
  EXPECT_EQ(driver_->coordinator().members().all().size(), 1U) << "who asks is no member";
  join();
  EXPECT_THAT(ask(), HasSubstr(R"("phase":"training","strategy":"sync")"));
  driver_->fail(ErrorCode::kData, "[data] gone");
  EXPECT_THAT(ask(), HasSubstr(R"("phase":"failed")"));
}

TEST_F(JobDriverTest, MembersAreWrittenBeforeTheFirstStepAndAtTheEnd) {
  make();
  turn();
  ASSERT_EQ(members_.size(), 1U);
  EXPECT_EQ(members_[0].find("worker"), std::string::npos);
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
  EXPECT_THAT(members_.back(), HasSubstr(R"("role":"worker","rank":0)")) << "as it was";
}

TEST_F(JobDriverTest, AClosedConnectionCountsAsALossLater) {
  make("on-worker-loss = wait\n");
  join();
  closed_ = true;
  for (int i = 0; i < 600; ++i) turn();
  EXPECT_THAT(lines_, HasSubstr("its connection closed"));
}

TEST_F(JobDriverTest, ALostServerBeginsATermThatStartsWhenEverybodyIsBack) {
  make("on-server-loss = restart\n", 600.0, 2);
  join_server();
  join();
  EXPECT_EQ(started_, 1);
  ASSERT_NE(data_.server(), nullptr);
  sent_.clear();

  Message leave;
  leave.header.set_run(kRun);
  leave.header.mutable_leave()->set_incarnation(kBert);
  leave.header.mutable_leave()->set_code(static_cast<int>(ErrorCode::kPeerLost));
  leave.header.mutable_leave()->set_text("it was ended by SIGTERM");
  EXPECT_FALSE(driver_->on_message(now(), "bert", leave));
  turn();
  EXPECT_EQ(terms_, std::vector<int64_t>{2});
  EXPECT_THAT(lines_, HasSubstr("everybody goes back to the newest checkpoint"));
  EXPECT_EQ(data_.server(), nullptr) << "its weights are of the old term";
  EXPECT_EQ(driver_->coordinator().phase(), wire::PHASE_GATHERING);
  const std::vector<wire::Header> said = told("anna");
  ASSERT_FALSE(said.empty());
  ASSERT_TRUE(said.front().has_job_text());
  const uint64_t run = kRun + 2;
  EXPECT_EQ(said.front().job_text().run(), run);
  EXPECT_EQ(said.front().job_text().term(), 2);
  EXPECT_EQ(said.front().job_text().first_run(), kRun);

  says_that_it_waits();  // of the old term: it has not heard
  const std::vector<wire::Header> again = told("anna");
  ASSERT_EQ(again.size(), 1U);
  EXPECT_TRUE(again.front().has_job_text());

  join(run);
  EXPECT_EQ(started_, 1) << "a server is missing";
  join_server(run);
  turn();
  turn();
  EXPECT_EQ(started_, 2);
  EXPECT_EQ(history_.recoveries, 1);
  EXPECT_EQ(driver_->coordinator().run(), run);
  EXPECT_NE(data_.server(), nullptr);
}

TEST_F(JobDriverTest, AServerThatDoesNotComeBackEndsTheJob) {
  make("replacement-timeout = 3\n", 600.0, 2);
  join_server();
  join();
  Message leave;
  leave.header.set_run(kRun);
  leave.header.mutable_leave()->set_incarnation(kBert);
  leave.header.mutable_leave()->set_code(static_cast<int>(ErrorCode::kPeerLost));
  driver_->on_message(now(), "bert", leave);
  turn();
  join(kRun + 2);
  turn(2900);
  EXPECT_EQ(driver_->coordinator().phase(), wire::PHASE_GATHERING);
  turn(200);
  EXPECT_EQ(driver_->coordinator().phase(), wire::PHASE_FAILED);
  EXPECT_THAT(driver_->coordinator().failure_text(),
              HasSubstr("not everybody came back within replacement-timeout = 3.0 s: waiting for "
                        "members: 1 of 2 servers"));
}

TEST_F(JobDriverTest, ALostServerEndsTheJobWhereThatIsWanted) {
  make("on-server-loss = abort\n", 600.0, 2);
  join_server();
  join();
  Message leave;
  leave.header.set_run(kRun);
  leave.header.mutable_leave()->set_incarnation(kBert);
  leave.header.mutable_leave()->set_code(static_cast<int>(ErrorCode::kPeerLost));
  driver_->on_message(now(), "bert", leave);
  turn();
  EXPECT_TRUE(terms_.empty());
  EXPECT_EQ(driver_->coordinator().phase(), wire::PHASE_FAILED);
}

}  // namespace
}  // namespace pushpull
