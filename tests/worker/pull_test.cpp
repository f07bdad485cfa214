// Tests the running pull beside pushes. The test sets the aims; no strategy takes part.
#include "worker/exchange/pull.h"

#include <gtest/gtest.h>

#include "common/base/error.h"
#include "tests/worker/exchange_parts.h"

namespace pushpull {
namespace {

// A schedule that never has a task.
class NoSchedule : public Schedule {
 public:
  std::optional<PullAim> on_weights(const PulledWeights& /*weights*/) override { return {}; }
  void on_weights_released() override {}
  void on_pushed(int64_t /*step*/, Range /*range*/) override {}
  void on_evaluated() override {}
  Decision next() const override { return {}; }
  std::optional<Task> wanted() const override { return {}; }
  bool weights_fit(const Task& /*task*/) const override { return false; }
  std::optional<Task> upcoming() const override { return {}; }
  bool gives_up(const PullAim& /*pull*/) const override { return true; }
  wire::Grant grant(Range /*range*/) const override { return {}; }
  bool acknowledged_is_applied() const override { return true; }
  bool draws_leases() const override { return true; }
  int64_t newest_lease() const override { return 17; }
};

class Request : public testing::Test {
 protected:
  std::vector<wire::Pull> asked() {
    std::vector<wire::Pull> out;
    for (const ToServer& message : std::exchange(outgoing_, {})) {
      if (message.message.header.exchange().has_pull()) {
        out.push_back(message.message.header.exchange().pull());
      }
    }
    return out;
  }
  void push() {
    delivery_.begin({0, {0, 2}, 1, 1, {0, 0}});
    for (int slice = 0; slice < 3; ++slice) {
      delivery_.add_part(slice, {0, 2}, floats_of(map_.map().elements(slice).size(), 1.0F));
    }
    delivery_.end({}, 0.0, "");
    delivery_.flush_all();
    outgoing_.clear();
  }
  bool hear(int server, int64_t pull, int64_t version, const std::vector<int>& slices) {
    Message message;
    message.header.mutable_weights()->set_pull(pull);
    for (const int slice : slices) {
      wire::SliceVersion* entry = message.header.mutable_weights()->add_slices();
      entry->set_slice(slice);
      entry->set_version(version);
      message.payloads.push_back(floats_of(map_.map().elements(slice).size(), 1.0F));
    }
    return request_.on_weights(server, message, now_);
  }
  void say(int server, int64_t pull, int asked) {
    wire::Status status;
    status.set_pull(pull);
    status.set_asked(asked);
    request_.on_status(server, status, now_);
  }
  void refuse(int server, const std::string& why) {
    wire::Status status;
    status.set_refused(why);
    request_.on_status(server, status, now_);
  }
  void later(int64_t ms) {
    now_ += ms;
    request_.on_tick(now_);
  }

  // Returns the error that ends the wait for a silent server.
  std::string silence() {
    try {
      for (int i = 0; i < 10; ++i) later(1000);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  int64_t now_ = 1'000'000;
  const ConnectionMap map_{three_slices(), 1};
  NoSchedule schedule_;
  WeightsBuffer weights_{map_.map()};
  std::vector<ToServer> outgoing_;
  PushDelivery delivery_{{11, 101}, map_, {}, outgoing_};
  Pull request_{{11, 101},
                {.max_window_bytes = 16384, .timeout_ms = 5000},
                {map_, schedule_, weights_, delivery_, outgoing_}};
};

TEST_F(Request, SendsTheAimToEveryServer) {
  request_.start({.clock = 4, .at_barrier = true}, now_);
  const auto pulls = asked();
  ASSERT_EQ(pulls.size(), 2U);
  EXPECT_EQ(pulls[0].clock(), 4);
  EXPECT_TRUE(pulls[0].barrier());
  EXPECT_FALSE(pulls[0].latest());
  EXPECT_EQ(pulls[0].window_bytes(), 16384);
  EXPECT_TRUE(pulls[0].want_lease());
  EXPECT_FALSE(pulls[1].want_lease()) << "server 0 has the pool";
  EXPECT_EQ(pulls[0].newest_lease(), 17);
  EXPECT_TRUE(request_.brings_weights());
}

TEST_F(Request, IsCompleteWithAllWeightsAndAllPushes) {
  push();
  request_.start({.clock = 1}, now_);
  EXPECT_TRUE(hear(0, 1, 1, {0, 2}));
  EXPECT_TRUE(hear(1, 1, 1, {1}));
  EXPECT_FALSE(request_.is_complete()) << "no server has acknowledged the push";
  for (const int server : {0, 1}) delivery_.acknowledge(server, 1);
  EXPECT_TRUE(request_.is_complete());
}

TEST_F(Request, RepeatedPullNamesReceivedBytesAndMissingSlices) {
  request_.start({.clock = 1}, now_);
  asked();
  hear(0, 1, 1, {0});
  later(1000);
  const auto pulls = asked();
  ASSERT_EQ(pulls.size(), 2U);
  EXPECT_EQ(pulls[0].asked(), 1);
  EXPECT_EQ(pulls[0].received_bytes(), 4096);
  ASSERT_EQ(pulls[0].missing_size(), 1);
  EXPECT_EQ(pulls[0].missing(0), 2);
}

TEST_F(Request, AnswersToOlderPullsAreIgnored) {
  request_.start({.clock = 1}, now_);
  request_.start({.clock = 2}, now_);
  EXPECT_FALSE(hear(0, 1, 2, {0}));
  EXPECT_TRUE(hear(0, 2, 2, {0}));
}

TEST_F(Request, PullForAPastVersionEndsIfAServerNoLongerHasIt) {
  for (const bool may_be_past : {false, true}) {
    request_.start({.clock = 1, .may_be_past = may_be_past}, now_);
    later(1000);
    say(0, may_be_past ? 2 : 1, 1);
    EXPECT_EQ(request_.running(), !may_be_past);
  }
}

TEST_F(Request, LostPushIsResentAfterALaterQuestionIsAnswered) {
  push();
  request_.start({.clock = 1}, now_);
  asked();
  say(0, 1, 0);
  EXPECT_TRUE(outgoing_.empty()) << "a status that answers no repetition";
  later(1000);
  asked();
  say(0, 1, 1);
  ASSERT_EQ(outgoing_.size(), 1U);
  EXPECT_TRUE(outgoing_[0].message.header.exchange().has_push());
}

TEST_F(Request, LeaseIsRequestedFromServerZeroOnly) {
  request_.start({.versions = PullAim::kPerServer, .leases = true}, now_);
  ASSERT_EQ(asked().size(), 1U);
  EXPECT_TRUE(request_.running());
  EXPECT_FALSE(request_.brings_weights());
  EXPECT_EQ(request_.waiting_for(), "a lease of server 0");
}

TEST_F(Request, SilenceErrorNamesTheServerAndTheMissingWeights) {
  request_.start({.clock = 1}, now_);
  hear(0, 1, 1, {0, 2});
  EXPECT_EQ(silence(),
            "[pull] server 1 has not answered for 6 s, waiting for weights of step 1 of server 1");
}

TEST_F(Request, SilenceErrorQuotesTheServersRefusal) {
  request_.start({.clock = 1}, now_);
  hear(0, 1, 1, {0, 2});
  for (int i = 0; i < 3; ++i) refuse(1, "[push-share] expected a share, got none");
  refuse(1, "[pull-clock] expected 0, got 1");
  EXPECT_EQ(request_.take_warnings(),
            (std::vector<std::string>{"server 1 has dropped a message of this worker: "
                                      "[push-share] expected a share, got none",
                                      "server 1 has dropped a message of this worker: "
                                      "[pull-clock] expected 0, got 1"}))
      << "each reason once";
  EXPECT_EQ(silence(),
            "[pull] server 1 has not answered for 6 s, waiting for weights of step 1 of server 1; "
            "it has dropped a message of this worker: [pull-clock] expected 0, got 1");
}

TEST_F(Request, RefusalIsForgottenOnceThePullIsComplete) {
  request_.start({.clock = 1}, now_);
  refuse(1, "[push-share] expected a share, got none");
  hear(0, 1, 1, {0, 2});
  hear(1, 1, 1, {1});
  request_.end();
  request_.start({.clock = 2}, now_);
  hear(0, 2, 2, {0, 2});
  EXPECT_EQ(silence(),
            "[pull] server 1 has not answered for 6 s, waiting for weights of step 2 of server 1");
}

}  // namespace
}  // namespace pushpull
