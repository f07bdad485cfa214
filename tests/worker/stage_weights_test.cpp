// Weights that one stage changes and others read: after `share` each stage has those that it reads.
#include "worker/compute/stage_weights.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/worker/stage_group.h"

namespace pushpull {
namespace {

// Each stage changes the elements that it owns, and then reads what it needs as changed.
void expect_shared(const std::string& keys, const FieldTable& fields, int64_t stages) {
  Job job = parse_job_text(
      "dataset = dummy\nglobal-batch = 8\nmicro-batch = 2\nsteps = 10\n" + keys, "test");
  job.stages = stages;
  StageGroup group(job, fields);
  bool passes = false;
  for (int stage = 0; stage < group.stages(); ++stage) {
    passes = passes || !group.parts_of(stage).returns.empty();
  }
  EXPECT_TRUE(passes) << "nothing to share";
  group.run([&](int worker) {
    Computing& one = group.of(worker);
    const StageParts parts = group.parts_of(worker);
    for (int64_t step = 1; step <= 2; ++step) {
      for (int64_t i = parts.owned.lo; i < parts.owned.hi; ++i) {
        one.weights[static_cast<size_t>(i)] = static_cast<float>(i * step);
      }
      one.compute->share_weights(step, {0, 4}, one.weights.data());
      for (const Range& range : parts.reads) {
        for (int64_t i = range.lo; i < range.hi; ++i) {
          ASSERT_EQ(one.weights[static_cast<size_t>(i)], static_cast<float>(i * step))
              << "stage " << worker << ", element " << i;
        }
      }
    }
  });
  EXPECT_EQ(group.parts().left(), 0U);
}

TEST(StageWeights, StagesGetTheElementsAtCuts) {
  for (const int64_t stages : {2, 3, 4}) {
    expect_shared("model = mlp\nhidden = 70,60,50\n", image_fields({1, 8, 8}, 5), stages);
  }
}

TEST(StageWeights, StagesInOneBlockGetAllOfTheirWeights) {
  expect_shared("model = mlp\nhidden = 5,4\n", image_fields({1, 4, 4}, 3), 3);
}

TEST(StageWeights, TiedWeightsGoToTheirReaders) {
  for (const int64_t stages : {2, 4}) {
    expect_shared("model = gpt\nlayers = 3\nheads = 2\nembed = 8\ntie-embeddings = true\n",
                  token_fields(6, 101), stages);
  }
}

}  // namespace
}  // namespace pushpull
