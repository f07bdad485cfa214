#include "ps/members/own_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <span>

#include "common/io/checkpoint.h"
#include "common/net/intervals.h"
#include "tests/ps/refusals.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kEmil = 11;
constexpr uint64_t kFrida = 12;
constexpr int64_t kPart = 64;  // of slice-bytes = 256

// A model of 200 elements in two tensors: parts begin at 0, 64, 128 and 192.
class OwnWeightsTest : public testing::Test {
 protected:
  OwnWeightsTest() {
    for (const auto& [name, size] : {std::pair("fc.weight", 150), std::pair("fc.bias", 50)}) {
      TensorInfo tensor;
      tensor.name = name;
      tensor.shape = {size};
      table_.add(tensor);
    }
    for (int i = 0; i < 200; ++i) given_.push_back(static_cast<float>(i) / 8);
    own_.begin(table_);
  }
  void add(uint64_t incarnation, int rank, const PeerId& peer, bool declared = true) {
    MemberInfo info;
    info.role = wire::ROLE_WORKER;
    info.rank = rank;
    info.incarnation = incarnation;
    info.host = "node";
    info.pid = static_cast<int64_t>(incarnation);
    info.peer = peer;
    info.declared = declared;
    members_.add(info);
  }
  // Returns the offsets that are asked for, and stores the receiver.
  std::vector<int64_t> ask(int64_t ms = 5) {
    now_ += ms;
    std::vector<int64_t> out;
    for (const Outgoing& message : own_.ask(now_, members_)) {
      to_ = message.to;
      out.push_back(message.message.header.ask_weights().offset());
      counts_[out.back()] = message.message.header.ask_weights().count();
    }
    return out;
  }
  Message part(uint64_t incarnation, int64_t offset, int64_t count) const {
    Message message;
    message.header.mutable_own_weights()->set_incarnation(incarnation);
    message.header.mutable_own_weights()->set_offset(offset);
    const std::span<const float> floats(given_.data() + offset, static_cast<size_t>(count));
    message.payloads.push_back({nullptr, std::as_bytes(floats)});
    return message;
  }
  Checked answer(int64_t offset, uint64_t incarnation = kEmil) {
    return own_.take(now_, members_.find(incarnation),
                     part(incarnation, offset, counts_.at(offset)));
  }

  TensorTable table_;
  std::vector<float> given_;
  Membership members_{10.0};
  OwnWeights own_{256};
  int64_t now_ = 1000;
  PeerId to_;
  std::map<int64_t, int64_t> counts_;
};

TEST_F(OwnWeightsTest, TheLowestWorkerThatHasDeclaredGivesAllInOrder) {
  add(9, 0, "undeclared", false);
  add(kFrida, 2, "bert");
  add(kEmil, 1, "anna");
  EXPECT_THAT(ask(), ElementsAre(0));
  EXPECT_EQ(to_, "anna");
  EXPECT_EQ(own_.giver(), "worker 1 (node, pid 11)");
  EXPECT_TRUE(taken(answer(0)));
  EXPECT_THAT(ask(), ElementsAre(64, 128)) << "more at a time, as answers come fast";
  EXPECT_TRUE(taken(answer(128)));
  EXPECT_EQ(own_.arrived(), 64) << "a gap";
  EXPECT_THAT(ask(), ElementsAre(192));
  EXPECT_EQ(counts_[192], 8);
  EXPECT_TRUE(taken(answer(192)));
  EXPECT_FALSE(own_.complete());
  EXPECT_TRUE(taken(answer(64)));
  EXPECT_TRUE(own_.complete());
  EXPECT_FALSE(own_.error());
  EXPECT_EQ(own_.sha256(), sha256_hex(std::as_bytes(std::span<const float>(given_))));
  EXPECT_EQ(own_.take_weights(), given_);
  EXPECT_TRUE(taken(answer(64))) << "a repetition, after all";
}

TEST_F(OwnWeightsTest, AnUnansweredRequestIsRepeatedAndEachTimeLater) {
  add(kEmil, 0, "anna");
  EXPECT_THAT(ask(), ElementsAre(0));
  EXPECT_THAT(ask(kRequestMs - 1), ElementsAre());
  EXPECT_THAT(ask(1), ElementsAre(0));
  EXPECT_THAT(ask(2 * kRequestMs - 1), ElementsAre());
  EXPECT_THAT(ask(1), ElementsAre(0));
  EXPECT_TRUE(taken(answer(0)));
  EXPECT_TRUE(taken(answer(0))) << "the answer to a repetition";
  EXPECT_THAT(ask(), ElementsAre(64)) << "one at a time: the link is slow";
  EXPECT_THAT(ask(5 * kRequestMs), ElementsAre()) << "an answer takes longer here";
}

TEST_F(OwnWeightsTest, AnotherWorkerBeginsAgainIfTheGiverIsGone) {
  add(kEmil, 0, "anna");
  add(kFrida, 1, "bert");
  ask();
  answer(0);
  ask();
  members_.remove(kEmil);
  EXPECT_THAT(ask(), ElementsAre(0));
  EXPECT_EQ(to_, "bert");
  EXPECT_EQ(own_.arrived(), 0);
  add(kEmil, 0, "anna");
  EXPECT_THAT(ask(), ElementsAre()) << "a worker that is asked goes on";
  EXPECT_EQ(reason_of(answer(0, kEmil)), "not-asked");
  answer(0, kFrida);
  EXPECT_EQ(own_.arrived(), kPart);
  members_.remove(kEmil);
  members_.remove(kFrida);
  EXPECT_THAT(ask(), ElementsAre()) << "nobody is there";
}

TEST_F(OwnWeightsTest, ImpossiblePartsAreRefused) {
  add(kEmil, 0, "anna");
  add(9, 1, "undeclared", false);
  ask();
  const auto take = [&](Message message) {
    const wire::OwnWeights& own = message.header.own_weights();
    return own_.take(now_, members_.find(own.incarnation()), message);
  };
  EXPECT_EQ(reason_of(take(part(77, 0, kPart))), "unknown-member");
  EXPECT_EQ(reason_of(take(part(9, 0, kPart))), "undeclared");
  Message none = part(kEmil, 0, kPart);
  none.payloads.clear();
  EXPECT_EQ(line_of(take(none)),
            "[bad-weights] expected 64 weights from 0, got 0 from worker 0 (node, pid 11)");
  EXPECT_EQ(reason_of(take(part(kEmil, 0, kPart - 1))), "bad-weights");
  EXPECT_EQ(reason_of(take(part(kEmil, 63, kPart))), "bad-weights");
  for (const int64_t offset : {int64_t{-64}, int64_t{256}, std::numeric_limits<int64_t>::min(),
                               std::numeric_limits<int64_t>::max()}) {
    Message message = part(kEmil, 0, kPart);
    message.header.mutable_own_weights()->set_offset(offset);
    EXPECT_EQ(reason_of(take(message)), "bad-weights") << offset;
  }
  given_[70] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(taken(take(part(kEmil, 64, kPart)))) << "nothing has asked for it yet";
  EXPECT_EQ(own_.arrived(), 0);
  EXPECT_FALSE(own_.error());
}

TEST_F(OwnWeightsTest, WeightsThatAreNotFiniteAreNamed) {
  add(kEmil, 0, "anna");
  given_[152] = std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < 4; ++i) {
    for (const int64_t offset : ask()) answer(offset);
  }
  ASSERT_TRUE(own_.error());
  EXPECT_EQ(own_.error()->code(), ErrorCode::kNotFinite);
  EXPECT_THAT(own_.error()->what(),
              AllOf(HasSubstr("[weights] the initial weights of worker 0 (node, pid 11)"),
                    HasSubstr("element 2 of fc.bias is nan")));
}

// fc.bias is stage 1: its worker knows no element before it.
TEST_F(OwnWeightsTest, EachStageIsTakenFromAWorkerThatHasDeclaredIt) {
  table_.tensors[1].begins_stage = true;
  own_.begin(table_);
  add(kEmil, 0, "anna");
  add(kFrida, 1, "bert");
  members_.find(kEmil)->stage = 0;
  members_.find(kFrida)->stage = 1;
  const auto take = [&](uint64_t who, int64_t at, int64_t offset, int64_t count) {
    Message message = part(who, at, count);
    message.header.mutable_own_weights()->set_offset(offset);
    return own_.take(now_, members_.find(who), message);
  };
  EXPECT_THAT(ask(), ElementsAre(0));
  EXPECT_TRUE(taken(take(kEmil, 0, 0, 64)));
  EXPECT_THAT(ask(), ElementsAre(64, 128));
  EXPECT_EQ(counts_[128], 22) << "to the end of the stage";
  EXPECT_TRUE(taken(take(kEmil, 64, 64, 64)));
  EXPECT_TRUE(taken(take(kEmil, 128, 128, 22)));
  EXPECT_FALSE(own_.complete());
  EXPECT_THAT(ask(), ElementsAre(0)) << "of its stage";
  EXPECT_EQ(to_, "bert");
  EXPECT_EQ(counts_[0], 50);
  EXPECT_TRUE(taken(take(kEmil, 64, 64, 64))) << "a repetition";
  EXPECT_EQ(reason_of(take(kFrida, 150, 64, 50)), "bad-weights");
  EXPECT_TRUE(taken(take(kFrida, 150, 0, 50)));
  EXPECT_TRUE(own_.complete());
  EXPECT_THAT(ask(), ElementsAre());
  EXPECT_EQ(own_.sha256(), sha256_hex(std::as_bytes(std::span<const float>(given_))));
  EXPECT_EQ(own_.take_weights(), given_);
}

TEST_F(OwnWeightsTest, AStageWithoutAWorkerIsWaitedFor) {
  table_.tensors[1].begins_stage = true;
  own_.begin(table_);
  add(kFrida, 1, "bert");
  members_.find(kFrida)->stage = 1;
  EXPECT_THAT(ask(), ElementsAre());
  add(kEmil, 0, "anna");
  members_.find(kEmil)->stage = 0;
  EXPECT_THAT(ask(), ElementsAre(0));
  EXPECT_EQ(to_, "anna");
}

}  // namespace
}  // namespace pushpull
