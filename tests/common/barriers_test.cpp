#include "common/job/barriers.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/job/job.h"

namespace pushpull {
namespace {

template <class Check>
void for_each_setting(const Check& check) {
  for (const int64_t eval : {0, 1, 3, 7, 100}) {
    for (const int64_t checkpoint : {0, 1, 4, 7, 100}) {
      for (const int64_t start : {0, 5, 12}) {
        const Barriers barriers{eval, checkpoint, start, 20};
        SCOPED_TRACE(testing::Message() << "eval-every " << eval << ", checkpoint-every "
                                        << checkpoint << ", from " << start);
        check(barriers);
      }
    }
  }
}

TEST(Barriers, NothingIsDueAtTheStartOrBeforeAndBothAtTheEnd) {
  for_each_setting([](const Barriers& b) {
    for (int64_t step = 0; step <= b.start_step; ++step) EXPECT_FALSE(b.is_barrier(step)) << step;
    EXPECT_TRUE(b.evaluation_due(b.end_step));
    EXPECT_TRUE(b.checkpoint_due(b.end_step));
    EXPECT_FALSE(b.is_barrier(b.end_step + 1));
    EXPECT_FALSE(b.is_barrier(b.end_step + 80));
  });
}

TEST(Barriers, TheEndIsDueThoughTheRunStartsThere) {
  for (const int64_t every : {0, 3, 4}) {
    for (const int64_t round : {1, 5}) {
      Barriers b{every, every, 14, 14};
      b.round = round;
      EXPECT_TRUE(b.starts_at_end());
      EXPECT_TRUE(b.evaluation_due(14) && b.checkpoint_due(14));
      EXPECT_EQ(b.last(14), 14);
      EXPECT_EQ(b.next(14), 14);
      EXPECT_EQ(b.next_evaluation(13), 14);
    }
  }
}

TEST(Barriers, AreDueEveryNSteps) {
  const Barriers b{3, 4, 0, 14};
  for (const int64_t step : {3, 6, 9, 12, 14}) EXPECT_TRUE(b.evaluation_due(step)) << step;
  for (const int64_t step : {4, 8, 12, 14}) EXPECT_TRUE(b.checkpoint_due(step)) << step;
  for (const int64_t step : {1, 2, 4, 5, 8, 13}) EXPECT_FALSE(b.evaluation_due(step)) << step;
  for (const int64_t step : {1, 3, 6, 9, 13}) EXPECT_FALSE(b.checkpoint_due(step)) << step;
}

TEST(Barriers, TheLastOneIsFoundFromAnyStep) {
  for_each_setting([](const Barriers& b) {
    for (int64_t step = b.start_step; step <= b.end_step + 3; ++step) {
      int64_t want = b.start_step;
      for (int64_t s = b.start_step; s <= step; ++s) {
        if (b.is_barrier(s)) want = s;
      }
      EXPECT_EQ(b.last(step), want) << step;
    }
  });
}

TEST(Barriers, TheNextOneIsFoundFromAnyStep) {
  for_each_setting([](const Barriers& b) {
    for (int64_t step = b.start_step; step < b.end_step; ++step) {
      int64_t want = step + 1;
      while (!b.is_barrier(want)) ++want;
      EXPECT_EQ(b.next(step), want) << step;
    }
  });
}

// ---- rounds of local:H ----

TEST(Barriers, RoundsEndAtMultiplesAndAtTheEnd) {
  const Barriers b{0, 0, 5, 18, 4};
  std::vector<int64_t> ends;
  for (int64_t step = 5; step < 18; step = b.round_end(step)) {
    EXPECT_TRUE(b.starts_round(step)) << step;
    ends.push_back(b.round_end(step));
  }
  EXPECT_EQ(ends, (std::vector<int64_t>{8, 12, 16, 18}));
  for (const int64_t step : {6, 7, 9, 17}) EXPECT_FALSE(b.starts_round(step)) << step;
  std::vector<int64_t> starts;
  for (const int64_t end : ends) starts.push_back(b.round_start(end));
  EXPECT_EQ(starts, (std::vector<int64_t>{5, 8, 12, 16}));
}

TEST(Barriers, AreTheFirstEndOfARoundAtOrAfterTheirMultiple) {
  const Barriers b{6, 0, 0, 30, 4};  // multiples 6, 12, 18, 24
  std::vector<int64_t> due;
  for (int64_t step = 0; step <= 30; ++step) {
    if (b.evaluation_due(step)) due.push_back(step);
  }
  EXPECT_EQ(due, (std::vector<int64_t>{8, 12, 20, 24, 30}));
  const Barriers often{3, 0, 0, 20, 8};  // several multiples in a round are one barrier
  EXPECT_TRUE(often.evaluation_due(8));
  EXPECT_EQ(often.next(0), 8);
  EXPECT_EQ(often.next(8), 16);
  EXPECT_EQ(often.last(19), 16);
}

// Compares with the definition, for every start, round length and setting.
TEST(Barriers, LastAndNextAgreeWithDueForRoundsOfAnyLength) {
  for_each_setting([](Barriers b) {
    for (b.round = 1; b.round <= 9; ++b.round) {
      SCOPED_TRACE(testing::Message() << "rounds of " << b.round);
      int64_t last = b.start_step;
      for (int64_t step = b.start_step; step < b.end_step; ++step) {
        if (b.is_barrier(step)) last = step;
        EXPECT_EQ(b.last(step), last) << step;
        int64_t next = step + 1;
        while (!b.is_barrier(next)) ++next;
        EXPECT_EQ(b.next(step), next) << step;
        next = step + 1;
        while (!b.evaluation_due(next)) ++next;
        EXPECT_EQ(b.next_evaluation(step), next) << step;
        if (b.is_barrier(step)) {
          EXPECT_EQ(step % b.round, 0) << "inside a round";
        }
        bool multiple = false;  // since the last end of a round
        for (int64_t s = step; s > b.start_step && (s == step || s % b.round != 0); --s) {
          multiple = multiple || (b.eval_every > 0 && s % b.eval_every == 0);
        }
        EXPECT_EQ(b.evaluation_due(step), multiple && step % b.round == 0) << step;
      }
    }
  });
}

TEST(Barriers, AJobsBarriersHaveItsRounds) {
  const Job job = parse_job_text("strategy = local:16\neval-every = 5\n", "test");
  EXPECT_EQ(barriers_of(job, 0, 100).next(0), 16);
  EXPECT_EQ(barriers_of(Job{}, 0, 100).round, 1);
}

TEST(Barriers, AJobWithoutServersToReplaceMakesNoCopies) {
  const auto copies = [](const std::string& keys) {
    return barriers_of(parse_job_text(keys, "test"), 0, 100).copy_every;
  };
  EXPECT_EQ(copies(""), 0);
  EXPECT_EQ(copies("recovery = peers\n"), 16);
  EXPECT_EQ(copies("recovery = peers\nstrategy = local:4\ncopy-every = 3\n"), 3);
  EXPECT_EQ(copies("recovery = peers\non-server-loss = abort\n"), 0);
  for (const char* other : {"async", "ssp:2", "backup:1", "buffered:2", "allreduce:ring"}) {
    EXPECT_EQ(copies(std::string("recovery = peers\nstrategy = ") + other + "\n"), 0) << other;
  }
}

TEST(Barriers, AnAwaitedEvaluationKeepsItsWeightsAndHoldsBackTheStepsAfterIt) {
  Barriers b = barriers_of(parse_job_text("eval-every = 3\nstop-when = loss:2\n", "test"), 0, 10);
  EXPECT_TRUE(b.keeps_evaluated(6));
  EXPECT_TRUE(b.snapshot_due(6));
  EXPECT_FALSE(b.checkpoint_due(6));
  EXPECT_TRUE(b.may_begin(2, 0));
  EXPECT_FALSE(b.may_begin(3, 0));
  EXPECT_TRUE(b.may_begin(5, 3));
  EXPECT_FALSE(b.may_begin(6, 3));
  EXPECT_TRUE(b.is_regular_evaluation(9));
  EXPECT_FALSE(b.is_regular_evaluation(10)) << "only the end asks for it";
  b = barriers_of(parse_job_text("eval-every = 3\n", "test"), 0, 10);
  EXPECT_FALSE(b.keeps_evaluated(6));
  EXPECT_TRUE(b.may_begin(9, 0));
}

TEST(Barriers, AChosenCheckpointIsABarrierFromThenOn) {
  Barriers b{7, 0, 0, 30};
  EXPECT_FALSE(b.is_barrier(10));
  for (int twice = 0; twice < 2; ++twice) b.choose(10);
  EXPECT_TRUE(b.checkpoint_due(10));
  EXPECT_FALSE(b.evaluation_due(10));
  EXPECT_EQ(b.last(9), 7);
  EXPECT_EQ(b.last(13), 10);
  EXPECT_EQ(b.next(7), 10);
  EXPECT_EQ(b.next(10), 14);
  EXPECT_EQ(b.chosen, std::vector<int64_t>{10});
}

TEST(Barriers, ChosenCheckpointsAreWithinTheRunAscendingAndTheNewest) {
  Barriers b{0, 0, 5, 30};
  for (const int64_t step : {5, 3, 30, 31}) b.choose(step);
  EXPECT_TRUE(b.chosen.empty());
  for (const int64_t step : {10, 20, 15, 25}) b.choose(step);
  EXPECT_EQ(b.chosen, (std::vector<int64_t>{20, 25}));
  EXPECT_EQ(b.next(25), 30);
  EXPECT_EQ(b.last(30), 30);
}

}  // namespace
}  // namespace pushpull
