// Tests the next pull, which the first message of a long push contains, and repeated pulls, which
// resend nothing. Server 0 has slices 0 and 2, server 1 has slice 1.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/worker/exchange_fixture.h"
#include "worker/exchange/push_pull.h"

namespace pushpull {
namespace {

class WhilePushing : public Exchange {
 protected:
  // Each part is a message of its own.
  void start(const std::string& keys = "strategy = sync\n", int64_t step = 4) {
    setup_.flush_bytes = 1;
    make(keys);
    assign({1});
    task_ = ready_at(step);
    forget_sent();
    worker_->begin_push(task_.step, task_.range);
  }
  void part(int slice) {
    worker_->add_part(slice, task_.range, constant(worker_->slices().elements(slice).size(), 2.0F));
  }
  void end() { worker_->end_push({0.5F, 0.5F}, 4.0, now_); }
  // Pushes slices 2, 1, 0, in backward's order. Returns true if the pull was sent before the end.
  bool pulls_before_the_end() {
    for (const int slice : {2, 1, 0}) part(slice);
    const bool early = worker_->pulls_while_pushing();
    end();
    return early;
  }

  Task task_;
};

TEST_F(WhilePushing, FirstMessageToEachServerContainsTheNextPull) {
  start();
  part(2);
  EXPECT_FALSE(worker_->pulls_while_pushing()) << "it may be the only message";
  part(1);
  part(0);
  EXPECT_TRUE(worker_->pulls_while_pushing());
  const auto first = sent_to(0);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].push().parts(0).slice(), 2);
  EXPECT_EQ(first[0].pull().clock(), 5);
  EXPECT_FALSE(first[0].pull().latest());
  end();
  const auto rest = sent_to(0);
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_FALSE(rest[0].has_pull());
  EXPECT_EQ(rest[0].push().losses_size(), 2);
  const auto other = sent_to(1);
  ASSERT_EQ(other.size(), 1U);
  EXPECT_EQ(other[0].push().parts(0).slice(), 1);
  EXPECT_EQ(other[0].pull().number(), first[0].pull().number());
}

TEST_F(WhilePushing, WeightsReceivedDuringThePushDoNotChangeThoseInUse) {
  start();
  part(2);
  part(0);
  const int64_t number = newest_pull().number();
  hear(0, weights(0, number, 5, 7.0F));
  EXPECT_EQ(worker_->weights()[0], 1.0F);
  EXPECT_TRUE(worker_->all_here()) << "for the task that is being computed";
  EXPECT_TRUE(worker_->here({0, kElements}));
  part(1);
  end();
  EXPECT_FALSE(worker_->all_here());
  const auto task = worker_->early();
  ASSERT_TRUE(task);
  EXPECT_EQ(task->step, 5);
  EXPECT_EQ(worker_->weights_of(*task)[0], 7.0F);
  hear(0, status(number, 1));
  hear(1, weights(1, number, 5, 8.0F, 1));
  EXPECT_EQ(next().step, 5);
}

TEST_F(WhilePushing, PullIsNotRepeatedBeforeThePushEnds) {
  start();
  part(2);
  part(0);
  forget_sent();
  later(60'000);
  EXPECT_TRUE(worker_->take_outgoing().empty());
  part(1);
  end();
  forget_sent();
  later(999);
  EXPECT_TRUE(worker_->take_outgoing().empty());
  later(1);
  EXPECT_EQ(sent_to(0).size(), 1U);
}

TEST_F(WhilePushing, AnswerSentBeforeThePushArrivedResendsNothing) {
  start();
  ASSERT_TRUE(pulls_before_the_end());
  const int64_t number = newest_pull().number();
  Message half = weights(0, number, 5, 7.0F, 0);
  half.header.mutable_weights()->mutable_slices()->DeleteSubrange(0, 1);
  half.payloads = {half.payloads[1]};
  later(1000);
  forget_sent();
  hear(0, half);
  EXPECT_TRUE(sent_to(0).empty());
  later(1000);
  const auto asked = sent_to(0);
  ASSERT_EQ(asked.size(), 1U);
  const wire::Pull& pull = asked[0].pull();
  EXPECT_FALSE(asked[0].has_push());
  EXPECT_EQ(pull.asked(), 2);
  EXPECT_EQ(pull.heard(), 0);
  EXPECT_EQ(pull.received_bytes(), 952 * 4);
  ASSERT_EQ(pull.missing_size(), 1);
  EXPECT_EQ(pull.missing(0), 0);
  hear(0, status(number, 1, false, 2));
  later(1000);
  EXPECT_EQ(sent_to(0).at(0).pull().heard(), 2) << "shows the server which slices are lost";
}

TEST_F(WhilePushing, EvaluationTheEndAndASingleMessageAllowNoEarlyPull) {
  start("strategy = sync\neval-every = 5\n");
  EXPECT_FALSE(pulls_before_the_end()) << "an evaluation comes next";
  start("strategy = sync\n", 9);
  EXPECT_FALSE(pulls_before_the_end()) << "it was the last step";
  setup_.flush_bytes = size_t{1} << 20;
  make("strategy = sync\n");
  assign({1});
  task_ = ready_at(4);
  worker_->begin_push(task_.step, task_.range);
  EXPECT_FALSE(pulls_before_the_end()) << "one message";
}

TEST_F(WhilePushing, ServerThatSharesMemoryGetsThePullAtTheEnd) {
  setup_.flush_bytes = 1;
  make("strategy = sync\n");
  worker_->share_memory(0, true);
  assign({1});
  task_ = ready_at(4);
  worker_->begin_push(task_.step, task_.range);
  EXPECT_FALSE(pulls_before_the_end()) << "a pull releases the server's previous weights";
}

// A share keeps its owner until its push ends.
TEST_F(WhilePushing, StateReceivedDuringAPushTakesEffectAfterIt) {
  make("strategy = sync\n");
  assign({0, 1});
  task_ = ready_at(4);
  forget_sent();
  worker_->begin_push(task_.step, task_.range);
  const int other = task_.range.lo == 0 ? 1 : 0;
  assign({other}, 2);
  for (const int slice : {2, 1, 0}) part(slice);
  end();
  EXPECT_EQ(next(), (Task{Task::kCompute, 4, {int64_t{2} * other, int64_t{2} * other + 2}, 1}));
  push(next());
  EXPECT_EQ(newest_pull().clock(), 5) << "the other share has another owner";
}

}  // namespace
}  // namespace pushpull
