// A job whose worker has initial weights of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "common/io/checkpoint.h"
#include "tests/ps/job_driver_fixture.h"

namespace pushpull {
namespace {

using testing::Not;

class OwnWeightsOfAJob : public JobDriverTest {
 protected:
  OwnWeightsOfAJob() {
    own_weights_ = true;
    for (int i = 0; i < 3000; ++i) weights_.push_back(static_cast<float>(i % 7));
  }
  // The worker answers the requests that have reached it. Returns their number.
  int give() {
    int count = 0;
    for (const wire::Header& header : messages_to("anna")) {
      if (!header.has_ask_weights()) continue;
      EXPECT_EQ(header.term_id(), kTermId);
      Message message;
      message.header.set_term_id(kTermId);
      message.header.mutable_own_weights()->set_incarnation(kAnna);
      message.header.mutable_own_weights()->set_offset(header.ask_weights().offset());
      const auto part = std::span<const float>(weights_).subspan(
          static_cast<size_t>(header.ask_weights().offset()),
          static_cast<size_t>(header.ask_weights().count()));
      message.payloads.push_back({nullptr, std::as_bytes(part)});
      EXPECT_FALSE(driver_->on_message(now(), "anna", message));
      ++count;
    }
    return count;
  }
  std::string hash() const { return sha256_hex(std::as_bytes(std::span<const float>(weights_))); }

  std::vector<float> weights_;
};

TEST_F(OwnWeightsOfAJob, TheServersStartFromThem) {
  make();
  join();
  EXPECT_EQ(started_, 0);
  for (int turns = 0; started_ == 0 && turns < 10; ++turns) {
    give();
    turn();
  }
  ASSERT_EQ(started_, 1);
  EXPECT_EQ(history_.own_weights_sha256, hash()) << "term.json has it";
  EXPECT_THAT(lines_, Not(HasSubstr("[weights]")));
  turn();  // sends the state to all
  EXPECT_FALSE(data_.server()->ready()) << "they are to be loaded";
  exchange_with_shards();
  EXPECT_TRUE(data_.server()->ready());
}

TEST_F(OwnWeightsOfAJob, NobodyIsAskedIfTheRunStartsFromAFile) {
  auto start = std::make_shared<FlatState>();
  start->weights.assign(3000, 2.0F);
  start_ = start;
  make();
  join();
  EXPECT_EQ(give(), 0);
  EXPECT_EQ(started_, 1);
  EXPECT_EQ(history_.own_weights_sha256, "");
}

TEST_F(OwnWeightsOfAJob, FillWhatAFileLacks) {
  auto start = std::make_shared<FlatState>();
  start->weights.assign(3000, 2.0F);
  start_ = start;
  drawn_ = {"b"};
  table_.tensors.clear();
  table_.total = 0;
  table_.add({.name = "a", .shape = {1000}});
  table_.add({.name = "b", .shape = {2000}});
  make();
  join();
  for (int turns = 0; started_ == 0 && turns < 10; ++turns) {
    give();
    turn();
  }
  ASSERT_EQ(started_, 1);
  EXPECT_EQ(history_.own_weights_sha256, hash());
  std::fill_n(weights_.begin(), 1000, 2.0F);
  EXPECT_EQ(opened_, weights_);
}

TEST_F(OwnWeightsOfAJob, OtherWeightsInALaterTermAreSaid) {
  history_.trained = true;
  history_.own_weights_sha256 = std::string(64, 'a');
  make("", 600.0, 1, 2);
  join();
  for (int turns = 0; started_ == 0 && turns < 10; ++turns) {
    give();
    turn();
  }
  ASSERT_EQ(started_, 1);
  EXPECT_THAT(lines_,
              HasSubstr("[weights] the initial weights of worker 0 (, pid 0) have the hash " +
                        hash().substr(0, 12) + ", those that the run began with had aaaaaaaaaaaa"));
  EXPECT_EQ(history_.own_weights_sha256, std::string(64, 'a')) << "the run's start";
}

TEST_F(OwnWeightsOfAJob, AWorkerThatGivesNoneIsNamedAndTheWaitIsBounded) {
  make("progress-timeout = 25\nheartbeat-timeout = 3600\n", 5.0);
  join();
  for (int i = 0; i < 11; ++i) turn(1000);
  EXPECT_THAT(lines_, HasSubstr("server 0 has waited 11.0 s for worker 0 (, pid 0) to hand over "
                                "its initial weights"));
  EXPECT_TRUE(driver_->serves()) << "--join-timeout is over, but all members are there";
  for (int i = 0; i < 15; ++i) turn(1000);
  EXPECT_FALSE(driver_->serves());
  EXPECT_EQ(driver_->exit_code(), 4);
  EXPECT_THAT(driver_->coordinator().failure_text(),
              HasSubstr("[weights] server 0 has waited 26.0 s for worker 0 (, pid 0) to hand over "
                        "its initial weights (progress-timeout = 25.0)"));
}

TEST_F(OwnWeightsOfAJob, OnesThatAreNotFiniteEndTheJob) {
  weights_[2999] = -HUGE_VALF;
  make();
  join();
  for (int turns = 0; driver_->serves() && turns < 10; ++turns) {
    give();
    turn();
  }
  EXPECT_EQ(started_, 0);
  EXPECT_EQ(driver_->exit_code(), 7);
  EXPECT_THAT(driver_->coordinator().failure_text(), HasSubstr("is -inf"));
}

TEST_F(OwnWeightsOfAJob, UnaskedOnesAreRefused) {
  own_weights_ = false;
  make();
  join();
  EXPECT_EQ(started_, 1);
  Message message;
  message.header.set_term_id(kTermId);
  message.header.mutable_own_weights()->set_incarnation(kAnna);
  message.payloads.push_back({nullptr, std::as_bytes(std::span<const float>(weights_))});
  const Checked refusal = driver_->on_message(now(), "anna", message);
  ASSERT_TRUE(refusal);
  EXPECT_STREQ(refusal->reason, "not-asked");
}

}  // namespace
}  // namespace pushpull
