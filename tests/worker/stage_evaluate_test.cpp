// Evaluations of a model that a group of workers divides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/worker/stage_group.h"
#include "worker/compute/evaluate.h"

namespace pushpull {
namespace {

class StageEvaluation : public testing::Test {
 protected:
  void make(const std::string& keys, const FieldTable& fields, int64_t stages, int local = 1) {
    Job job = parse_job_text(
        "dataset = dummy\nglobal-batch = 8\nmicro-batch = 2\nsteps = 10\n" + keys, "test");
    job.stages = stages;
    group_ = std::make_unique<StageGroup>(job, fields,
                                          std::vector<int>(static_cast<size_t>(stages), local));
  }
  std::optional<wire::EvalResult> evaluate(Computing& one, StageExchange* exchange, Range chunks) {
    Activity activity([] { return 0; });
    EvaluationShare share(
        {group_->job(), group_->dataset(), *one.model}, 7, [this] { return over_.load(); },
        activity, nullptr, exchange);
    return share.run(3, chunks, one.weights);
  }
  // Returns the results of all stages.
  std::vector<std::optional<wire::EvalResult>> evaluate(Range chunks) {
    std::vector<std::optional<wire::EvalResult>> results(static_cast<size_t>(group_->stages()));
    group_->run([&](int worker) {
      results[static_cast<size_t>(worker)] =
          evaluate(group_->of(worker), &group_->end(worker), chunks);
    });
    EXPECT_EQ(group_->parts().left(), 0U);
    return results;
  }
  void expect_same(const std::string& keys, const FieldTable& fields, int64_t stages,
                   int local = 1) {
    make(keys, fields, stages, local);
    for (const Range& chunks : {Range{0, 11}, {3, 8}, {10, 11}, {4, 4}}) {
      const auto want = evaluate(group_->whole(), nullptr, chunks);
      ASSERT_TRUE(want);
      EXPECT_EQ(want->chunks_size(), chunks.size());
      const auto got = evaluate(chunks);
      for (int stage = 0; stage < group_->stages(); ++stage) {
        const auto& of_stage = got[static_cast<size_t>(stage)];
        ASSERT_TRUE(of_stage);
        if (stage + 1 < group_->stages()) {
          EXPECT_EQ(of_stage->chunks_size(), 0);
        } else {
          EXPECT_EQ(of_stage->SerializeAsString(), want->SerializeAsString()) << keys;
        }
      }
    }
  }

  std::unique_ptr<StageGroup> group_;
  std::atomic<bool> over_ = false;
};

TEST_F(StageEvaluation, HasTheResultsOfTheUndividedModel) {
  for (const int64_t stages : {2, 3}) {
    expect_same("model = mlp\nhidden = 40,30,20\n", image_fields({1, 8, 8}, 5), stages);
    expect_same("model = convnet\n", image_fields({1, 8, 8}, 5), stages);
    expect_same("model = gpt\nlayers = 2\nheads = 2\nembed = 16\ndropout = 0.5\n",
                token_fields(6, 101), stages);
    expect_same("model = bert\nlayers = 2\nheads = 2\nembed = 16\n", question_fields(6, 101, 3),
                stages);
  }
  expect_same("model = gpt\nlayers = 4\nheads = 2\nembed = 16\ndropout = 0.5\n",
              token_fields(6, 101), 2, 2);
}

// The first stage does not fill the memory with what the second one has not taken.
TEST_F(StageEvaluation, AStageWaitsForTheOneBehind) {
  make("model = mlp\nhidden = 40,30\n", image_fields({1, 8, 8}, 5), 2);
  std::thread first([&] { EXPECT_TRUE(evaluate(group_->of(0), &group_->end(0), {0, 11})); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(group_->parts().left(), 1U + 4U) << "that it evaluates, and four chunks";
  const auto result = evaluate(group_->of(1), &group_->end(1), {0, 11});
  first.join();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->chunks_size(), 11);
}

TEST_F(StageEvaluation, NothingOnceTheJobIsOver) {
  make("model = mlp\nhidden = 40,30\n", image_fields({1, 8, 8}, 5), 2);
  over_ = true;
  for (const auto& result : evaluate({0, 11})) EXPECT_FALSE(result);
}

}  // namespace
}  // namespace pushpull
