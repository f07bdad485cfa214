#include "ps/server/server_member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/net/model_wire.h"
#include "ps/server/data_plane.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

class ServerMemberTest : public testing::Test, private ServerHost, private ServerParts {
 protected:
  ServerMemberTest() : member_(options(), *this) {}

  static JoinOptions options() {
    JoinOptions out;
    out.incarnation = 7;
    out.coordinator = "tcp://head:5555";
    out.timeout_s = 2.0;
    return out;
  }
  std::string listen(const Job& job, uint64_t term_id, uint64_t /*run_id*/) override {
    ++listened_;
    EXPECT_EQ(job.heartbeat_timeout_s, 3.0);
    EXPECT_EQ(term_id, kTermId);
    if (!listen_error_.empty()) throw Error(ErrorCode::kUsage, listen_error_);
    return "tcp://node:1";
  }
  void rename(const Job& /*job*/, uint64_t term_id) override { renamed_.push_back(term_id); }
  ServedData& data() override { return data_; }
  std::unique_ptr<Server> make_server(const JobView& /*job*/, ServerSetup setup,
                                      TrainingObserver* observer) override {
    return std::make_unique<Server>(std::move(setup), observer);
  }

  void send_job(uint64_t term_id = kTermId, int64_t term = 1) {
    Message message;
    message.header.mutable_job_text()->set_term_id(term_id);
    message.header.mutable_job_text()->set_term(term);
    message.header.mutable_job_text()->set_ini(
        to_ini(job_of("heartbeat-timeout = 3\nclip-norm = 1\n")));
    member_.on_message(now_, message);
  }
  void send_state(int64_t version, wire::Phase phase, uint64_t term_id = kTermId,
                  bool released = false) {
    Message message;
    message.header.set_term_id(term_id);
    wire::State* state = message.header.mutable_state();
    state->set_version(version);
    state->set_phase(phase);
    state->set_let_go(released);
    state->set_rank(0);
    if (phase == wire::PHASE_FAILED) {
      state->set_code(5);
      state->set_text("[job] lost somebody");
    }
    if (phase == wire::PHASE_TRAINING) {
      to_wire(table_of(3000), state->mutable_tensors());
      state->set_end_step(10);
      state->set_total_steps(10);
      state->set_shares(2);
      state->set_grant_key(kGrantKey);
    }
    member_.on_message(now_, message);
  }
  void join() {
    tick();
    send_job();
    tick();
    send_state(1, wire::PHASE_GATHERING);
    EXPECT_TRUE(member_.joined());
    sent();
  }
  void tick(int64_t ms = 10) {
    now_ += ms;
    member_.on_tick(now_);
  }
  // Returns the kinds of the messages sent, in order. sent_ keeps the messages.
  std::vector<std::string> sent() {
    sent_ = member_.take_outgoing();
    std::vector<std::string> kinds;
    for (const Message& message : sent_) {
      const wire::Header& header = message.header;
      kinds.push_back(header.has_hello()         ? "hello " + header.hello().data_endpoint()
                      : header.has_heartbeat()   ? "heartbeat"
                      : header.has_record_part() ? "record"
                      : header.has_leave()       ? "leave " + std::to_string(header.leave().code())
                                                 : "other");
    }
    return kinds;
  }

  using Kinds = std::vector<std::string>;
  int64_t now_ = 0;
  int listened_ = 0;
  std::vector<uint64_t> renamed_;
  std::string listen_error_;
  ServedData data_{*this};
  ServerMember member_;
  std::vector<Message> sent_;
};

TEST_F(ServerMemberTest, FetchesTheJobAndThenReportsItsAddress) {
  tick();
  EXPECT_EQ(sent(), Kinds{"hello "});
  EXPECT_EQ(sent_[0].header.hello().role(), wire::ROLE_SERVER);
  EXPECT_EQ(listened_, 0);
  send_job();
  EXPECT_EQ(listened_, 1);
  tick();
  EXPECT_EQ(sent(), Kinds{"hello tcp://node:1"});
  tick(500);
  EXPECT_EQ(sent(), Kinds{"hello tcp://node:1"}) << "Hello repeats until it is a member";
  EXPECT_FALSE(member_.joined());
  send_state(1, wire::PHASE_GATHERING);
  tick();
  EXPECT_EQ(sent(), Kinds{"heartbeat"});
  EXPECT_TRUE(member_.joined());
}

TEST_F(ServerMemberTest, RepeatedAnswerToTheFirstHelloIsIgnored) {
  tick();
  send_job();
  send_job();
  EXPECT_EQ(listened_, 1);
  EXPECT_FALSE(member_.joined());
  EXPECT_FALSE(member_.end());
}

TEST_F(ServerMemberTest, FailedListenEndsItWithoutALeave) {
  listen_error_ = "[listen] the port is taken";
  tick();
  send_job();
  ASSERT_TRUE(member_.end());
  EXPECT_EQ(member_.end()->exit_code(), 2);
  EXPECT_EQ(sent(), Kinds{"hello "});
}

TEST_F(ServerMemberTest, MissingCoordinatorEndsIt) {
  tick();
  tick(2001);
  ASSERT_TRUE(member_.end());
  EXPECT_EQ(member_.end()->code, ErrorCode::kUnreachable);
  EXPECT_THAT(member_.end()->text, HasSubstr("tcp://head:5555"));
}

TEST_F(ServerMemberTest, ServesOnceTheJobTrains) {
  join();
  EXPECT_EQ(data_.server(), nullptr);
  send_state(2, wire::PHASE_TRAINING);
  EXPECT_NE(data_.server(), nullptr);
}

TEST_F(ServerMemberTest, LeavesOnlyWhenTheJobIsFinished) {
  join();
  send_state(2, wire::PHASE_TRAINING);
  send_state(3, wire::PHASE_FINISHING);
  EXPECT_FALSE(member_.end());
  tick();
  EXPECT_EQ(sent(), Kinds{"heartbeat"}) << "with its last statistics";
  send_state(4, wire::PHASE_FINISHED);
  EXPECT_EQ(sent(), Kinds{"leave 0"});
  ASSERT_TRUE(member_.end());
  EXPECT_EQ(member_.end()->exit_code(), 0);
  tick(5000);
  EXPECT_TRUE(sent().empty()) << "no message follows Leave";
}

TEST_F(ServerMemberTest, FailedJobGivesItsCodeAndText) {
  join();
  send_state(2, wire::PHASE_FAILED);
  EXPECT_EQ(sent(), Kinds{"leave 0"});
  EXPECT_EQ(member_.end()->exit_code(), 5);
  EXPECT_EQ(member_.end()->text, "[job] lost somebody");
}

TEST_F(ServerMemberTest, SignalIsReportedAndSetsTheExitCode) {
  join();
  EXPECT_FALSE(member_.on_signal(now_, 15));
  EXPECT_FALSE(member_.end()) << "the job may have started meanwhile";
  tick(1);
  EXPECT_EQ(member_.take_outgoing().at(0).header.heartbeat().told_to_end(), 15);
  send_state(2, wire::PHASE_GATHERING, kTermId, true);
  tick(1);
  EXPECT_EQ(sent(), Kinds{"leave 5"});
  EXPECT_THAT(sent_[0].header.leave().text(), HasSubstr("SIGTERM"));
  EXPECT_EQ(member_.end()->exit_code(), 143);
}

TEST_F(ServerMemberTest, SignalEndsItAtOnceWithoutACoordinator) {
  EXPECT_FALSE(member_.on_signal(now_, 15));
  ASSERT_TRUE(member_.end());
  EXPECT_EQ(member_.end()->exit_code(), 143);
}

TEST_F(ServerMemberTest, DuringTrainingItKeepsItsPlaceUntilTheGraceIsOverAndTheCoordinatorSilent) {
  join();
  send_state(2, wire::PHASE_TRAINING);
  sent();
  EXPECT_FALSE(member_.on_signal(now_, 15));
  EXPECT_FALSE(member_.on_signal(now_ + 1000, 15)) << "schedulers repeat the signal";
  tick(1);
  EXPECT_EQ(member_.take_outgoing().at(0).header.heartbeat().told_to_end(), 15);
  EXPECT_FALSE(member_.end());
  now_ += EndRequest::kGraceMs;
  send_state(3, wire::PHASE_TRAINING);
  tick(1);
  EXPECT_FALSE(member_.end());
  tick(EndRequest::kSilentMs);
  ASSERT_TRUE(member_.end());
  EXPECT_EQ(member_.end()->exit_code(), 143);
}

TEST_F(ServerMemberTest, OwnFailureIsReported) {
  join();
  member_.fail(ErrorCode::kDevice, "[device] gone");
  EXPECT_EQ(sent(), Kinds{"leave 9"});
  EXPECT_EQ(member_.end()->exit_code(), 9);
}

TEST_F(ServerMemberTest, RestOfTheLogGoesBeforeItLeaves) {
  join();
  send_state(2, wire::PHASE_TRAINING);
  sent();
  for (int i = 0; i < 3; ++i) data_.server()->log().add(wire::Applied());
  member_.fail(ErrorCode::kDevice, "[device] gone");
  EXPECT_EQ(sent(), (Kinds{"record", "leave 9"}));
  EXPECT_EQ(sent_[0].header.record_part().applied_size(), 3);
}

TEST_F(ServerMemberTest, NormsAreRepeatedUntilTheTotalArrives) {
  join();
  send_state(2, wire::PHASE_TRAINING);
  ServerSetup setup = server_setup(job_of("clip-norm = 1\n"), 3000);
  setup.term_id = kTermId;
  data_.server()->on_state(state_with_workers({kAnna, kBert}));
  for (const auto& [who, share] : {std::pair{kAnna, Range{0, 2}}, std::pair{kBert, Range{2, 4}}}) {
    data_.take("peer", push_message(setup, who, 1, 0, share, 1.0F));
  }
  data_.work();
  ASSERT_TRUE(data_.server()->waiting_norms());
  const auto norms = [&] {
    const auto kinds = sent();
    return std::count(kinds.begin(), kinds.end(), "other");
  };
  tick();
  EXPECT_EQ(norms(), 1);
  EXPECT_TRUE(sent_[0].header.has_norms());
  tick(100);
  EXPECT_EQ(norms(), 0);
  tick(100);
  EXPECT_EQ(norms(), 1);
  Message total;
  total.header.mutable_norm_total()->set_step(0);
  total.header.mutable_norm_total()->set_norm(1.0);
  total.header.set_term_id(kTermId);
  member_.on_message(now_, total);
  tick(500);
  EXPECT_EQ(norms(), 0);
}

TEST_F(ServerMemberTest, NewTermDropsItsWeightsAndRejoins) {
  join();
  send_state(2, wire::PHASE_TRAINING);
  ASSERT_NE(data_.server(), nullptr);
  sent();
  send_job(kTermId + 1, 2);
  EXPECT_EQ(data_.server(), nullptr);
  EXPECT_EQ(renamed_, std::vector<uint64_t>{kTermId + 1});
  EXPECT_EQ(listened_, 1) << "it keeps its address";
  EXPECT_FALSE(member_.joined());
  tick();
  EXPECT_EQ(sent(), std::vector<std::string>{"hello tcp://node:1"});
  send_state(3, wire::PHASE_TRAINING);  // a late state of the old term
  EXPECT_EQ(data_.server(), nullptr);
  send_state(1, wire::PHASE_GATHERING, kTermId + 1);
  EXPECT_TRUE(member_.joined());
  send_state(2, wire::PHASE_TRAINING, kTermId + 1);
  EXPECT_NE(data_.server(), nullptr);
}

}  // namespace
}  // namespace pushpull
