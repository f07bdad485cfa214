#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/job/job.h"
#include "ps/members/evaluations.h"
#include "tests/common/thrown.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

const std::vector<HeadInfo> kHeads = {{"label", Metric::kAccuracy, 1},
                                      {"place", Metric::kMeanSquaredError, 1}};

Job job_with(const std::string& rule) {
  return job_of("eval-every = 2\nstop-when = " + rule + "\n");
}

// An evaluation of ten targets: `correct` of the first head, and the loss of both.
Evaluation evaluation(int64_t step, double correct, double loss) {
  return {step, {{kHeads[0], {10 * loss, 10, correct}}, {kHeads[1], {10 * loss, 10, 10 * loss}}}};
}

std::string refusal(const Job& job, const std::vector<HeadInfo>& heads, int64_t test_samples) {
  return thrown(ErrorCode::kUsage, [&] { measure_of(job, heads, test_samples); });
}

TEST(BestEvaluation, StopsOnceTheLossHasNotFallenForThePatience) {
  const Job job = job_with("loss:2");
  BestEvaluation best(job, measure_of(job, kHeads, 10), {});
  best.add(evaluation(2, 1, 0.5));
  best.add(evaluation(4, 1, 0.4));
  EXPECT_TRUE(best.is_best(4));
  best.add(evaluation(6, 9, 0.4));
  EXPECT_FALSE(best.stops()) << "an equal value is not better";
  best.add(evaluation(8, 9, 0.45));
  EXPECT_TRUE(best.stops());
  EXPECT_EQ(best.record(), (EvaluationRecord{"loss", 8, 4, 0.4, 2}));
  EXPECT_THAT(best.text(), HasSubstr("stop-when = loss:2: 2 evaluations brought no better loss "
                                     "than 0.4 at step 4; the run ends at step 8"));
}

TEST(BestEvaluation, ABetterValueBeginsThePatienceAnew) {
  const Job job = job_with("accuracy:2");
  BestEvaluation best(job, measure_of(job, kHeads, 10), {});
  best.add(evaluation(2, 5, 0.5));
  best.add(evaluation(4, 4, 0.4));
  best.add(evaluation(6, 6, 0.9));
  best.add(evaluation(8, 6, 0.1));
  EXPECT_FALSE(best.stops());
  EXPECT_TRUE(best.is_best(6)) << "a higher accuracy is better, whatever the loss";
}

TEST(BestEvaluation, FollowsTheHeadThatTheRuleNames) {
  const Job job = job_with("place/mean-squared-error:1");
  BestEvaluation best(job, measure_of(job, kHeads, 10), {});
  best.add(evaluation(2, 5, 0.5));
  best.add(evaluation(4, 1, 0.4));
  EXPECT_TRUE(best.is_best(4)) << "a lower error is better";
}

TEST(BestEvaluation, AValueThatIsNotFiniteIsNeverBetter) {
  const Job job = job_with("loss:1");
  BestEvaluation best(job, measure_of(job, kHeads, 10), {});
  best.add(evaluation(2, 5, std::nan("")));
  EXPECT_FALSE(best.is_best(2));
  EXPECT_TRUE(best.stops());
  EXPECT_THAT(best.text(),
              HasSubstr("1 evaluation brought no better loss; the run ends at step 2"));
}

TEST(BestEvaluation, ARecordOfTheSameMeasureGoesOn) {
  const EvaluationRecord before{"loss", 4, 2, 0.3, 1};
  const Job same = job_with("loss:2");
  BestEvaluation best(same, measure_of(same, kHeads, 10), before);
  best.add(evaluation(4, 1, 0.1));
  EXPECT_EQ(best.record(), before) << "the evaluation of the checkpoint is not counted again";
  best.add(evaluation(6, 1, 0.4));
  EXPECT_TRUE(best.stops());
  EXPECT_TRUE(stops_early_at(same, best.record(), 6));
  EXPECT_FALSE(stops_early_at(same, best.record(), 7));
  const Job other = job_with("accuracy:2");
  EXPECT_EQ(BestEvaluation(other, measure_of(other, kHeads, 10), before).record(),
            (EvaluationRecord{.measure = "accuracy"}));
}

TEST(BestEvaluation, WithoutARuleTheBestIsTheFirstHeadsMetric) {
  const Job job = job_of("checkpoint-best = true\n");
  BestEvaluation best(job, measure_of(job, kHeads, 10), {});
  for (int step = 1; step < 50; ++step) best.add(evaluation(step, step == 7 ? 9 : 3, 0.5));
  EXPECT_TRUE(best.is_best(7));
  EXPECT_FALSE(best.stops());
}

TEST(FollowedEvaluations, ResultThatEndsTheRunLetsNoStepBegin) {
  const Job job = job_with("loss:1");
  Declaration declaration;
  declaration.heads = kHeads;
  declaration.test_samples = 10;
  const Barriers barriers = barriers_of(job, 0, 9);
  FollowedEvaluations followed(job, declaration, 0, 20, {});
  EXPECT_FALSE(followed.add(evaluation(2, 1, 0.5), barriers));
  EXPECT_EQ(followed.evaluated(), 2);
  FollowedEvaluations stopped = followed;
  EXPECT_TRUE(stopped.add(evaluation(4, 1, 0.6), barriers));
  EXPECT_TRUE(stopped.stopped_early());
  EXPECT_EQ(stopped.evaluated(), 2);
  EXPECT_FALSE(followed.add(evaluation(9, 1, 0.6), barriers)) << "only --stop-after asks for it";
  EXPECT_EQ(followed.record().step, 2);
  const FollowedEvaluations resumed(job, declaration, 4, 20, stopped.record());
  EXPECT_TRUE(resumed.stopped_early()) << "nothing is left to train";
}

TEST(FollowedEvaluations, ACheckpointHoldsWhatTheEvaluationsUpToItHaveShown) {
  const Job job = job_with("loss:2");
  Declaration declaration;
  declaration.heads = kHeads;
  declaration.test_samples = 10;
  const Barriers barriers = barriers_of(job, 2, 20);
  FollowedEvaluations followed(job, declaration, 2, 20, {"loss", 2, 2, 0.3, 0});
  followed.add(evaluation(4, 1, 0.2), barriers);
  followed.add(evaluation(6, 1, 0.6), barriers);
  EXPECT_EQ(followed.record_at(2), (EvaluationRecord{"loss", 2, 2, 0.3, 0}));
  EXPECT_EQ(followed.record_at(5), (EvaluationRecord{"loss", 4, 4, 0.2, 0}));
  EXPECT_EQ(followed.record_at(6), followed.record());
}

TEST(Measure, RefusalNamesTheKeyAndTheMeasuresOfTheModel) {
  EXPECT_THAT(refusal(job_with("perplexity:2"), kHeads, 10),
              HasSubstr("stop-when = perplexity:2: model = mlp has no such measure; it has "
                        "label/loss, label/accuracy, place/loss, place/mean-squared-error"));
  EXPECT_THAT(refusal(job_with("span/loss:2"), kHeads, 10), HasSubstr("span/loss:2"));
  EXPECT_THAT(refusal(job_with("loss:2"), kHeads, 0), HasSubstr("no test samples"));
  EXPECT_THAT(refusal(job_of("checkpoint-best = true\n"), {}, 10),
              HasSubstr("checkpoint-best = true needs evaluations"));
}

}  // namespace
}  // namespace pushpull
