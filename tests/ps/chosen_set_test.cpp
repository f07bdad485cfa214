#include "ps/server/chosen_set.h"

#include <gtest/gtest.h>

#include "tests/ps/rule_fixture.h"

namespace pushpull {
namespace {

class ChosenSetTest : public RuleTest {
 protected:
  bool choose(int64_t step, std::initializer_list<int> shares) {
    wire::Chosen chosen;
    chosen.set_step(step);
    for (const int lo : shares) chosen.add_lo(lo);
    return rule_->on_chosen(chosen);
  }
};

TEST_F(ChosenSetTest, TheStepTakesTheChosenPushesAndDropsTheOthers) {
  make("strategy = backup:1\nlr = 1\n");
  const float before = weight();
  give(kAnna, 0, {0, 2}, 2.0F);
  ASSERT_TRUE(rule_->waiting_arrived());
  EXPECT_EQ(rule_->waiting_arrived()->lo_size(), 1);
  give(kBert, 0, {2, 4}, 100.0F);
  rule_->apply_due();
  EXPECT_EQ(rule_->updates(), 0) << "no set is chosen yet";
  EXPECT_TRUE(choose(0, {0}));
  EXPECT_FALSE(rule_->waiting_arrived());
  EXPECT_FLOAT_EQ(weight(), before - 1.0F) << "the mean of two micro-batches";
  ASSERT_EQ(observer_.commits.size(), 2U);
  EXPECT_TRUE(observer_.commits[0].counted);
  EXPECT_TRUE(observer_.commits[1].dropped);
}

TEST_F(ChosenSetTest, PushAfterTheChoiceIsDropped) {
  make("strategy = backup:1\n");
  give(kAnna, 0, {0, 2});
  choose(0, {0});
  give(kBert, 0, {2, 4});
  give(kBert, 0, {0, 2});
  ASSERT_EQ(observer_.commits.size(), 3U);
  EXPECT_TRUE(observer_.commits[1].dropped);
  EXPECT_FALSE(observer_.commits[2].dropped) << "a duplicate: its micro-batches already count";
  EXPECT_EQ(rule_->updates(), 1);
}

TEST_F(ChosenSetTest, EntriesOfOneUpdateAreMarkedInTheRecord) {
  make("strategy = backup:1\n");
  give(kBert, 0, {2, 4});
  give(kAnna, 0, {0, 2});
  choose(0, {0, 2});
  ASSERT_EQ(applied_.size(), 2U);
  EXPECT_TRUE(applied_[0].more());
  EXPECT_EQ(applied_[0].lo(), 0);
  EXPECT_FALSE(applied_[1].more()) << "the last entry of the update";
  EXPECT_EQ(applied_[1].rank(), 1);
}

TEST_F(ChosenSetTest, LateWorkerLearnsThatItsVersionIsGone) {
  make("strategy = backup:1\n");
  wire::Pull pull;
  pull.set_clock(0);
  EXPECT_FALSE(rule_->is_past(pull));
  for (int64_t step = 0; step < 2; ++step) {
    give(kAnna, step, {0, 2});
    choose(step, {0});
  }
  EXPECT_TRUE(rule_->is_past(pull));
  EXPECT_EQ(version(0), std::nullopt);
  EXPECT_EQ(version(1), 1);
  EXPECT_EQ(version(0, true), 2) << "the newest version";
}

}  // namespace
}  // namespace pushpull
