#include "ps/server/buffered.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "common/update/optimizer_options.h"
#include "tests/common/thrown.h"
#include "tests/ps/rule_fixture.h"

namespace pushpull {
namespace {

using Histogram = std::map<int64_t, int64_t>;

class BufferedTest : public RuleTest {
 protected:
  // Adds a whole push of a share. Its gradient stays in `memory`.
  void give_memory(uint64_t who, int64_t step, Range share, std::span<const float> memory) {
    ReceivedPush push;
    push.incarnation = who;
    push.rank = static_cast<int>(who - kAnna);
    push.step = step;
    push.range = share;
    push.reads = {rule_->updates()};
    size_t at = 0;
    for (const int slice : shard_->slices()) {
      const auto part = memory.subspan(at, static_cast<size_t>(shard_->elements(slice)));
      at += part.size();
      for (const Range node : rule_->nodes_of(share)) {
        rule_->take_part(push, slice, {node, {nullptr, std::as_bytes(part)}});
      }
    }
    rule_->take_push(std::move(push));
    rule_->apply_due();
  }
  static std::vector<float> gradient(uint64_t seed) {
    return floats_of(random_payload(kElements, seed));
  }
  std::vector<float> weights() const {
    std::vector<float> out;
    for (const int slice : shard_->slices()) {
      const std::vector<float> some = floats_of(shard_->weights(slice));
      out.insert(out.end(), some.begin(), some.end());
    }
    return out;
  }
  int waiting() const {
    int parts = 0;
    rule_->for_waiting([&](PartialSum&) { ++parts; });
    return parts;
  }
};

TEST_F(BufferedTest, KPushesMakeOneUpdateWithTheirMean) {
  make("strategy = buffered:3\nlr = 0.5\n");
  const std::vector<float> before = weights();
  const std::vector<std::vector<float>> pushes = {gradient(1), gradient(2), gradient(3)};
  give_memory(kAnna, 0, {0, 2}, pushes[0]);
  give_memory(kBert, 0, {2, 4}, pushes[1]);
  EXPECT_EQ(rule_->updates(), 0) << "the buffer is not full";
  EXPECT_EQ(weights(), before);
  EXPECT_EQ(waiting(), 4) << "two pushes of two slices";
  give_memory(kAnna, 1, {0, 2}, pushes[2]);
  EXPECT_EQ(rule_->updates(), 1);
  EXPECT_EQ(waiting(), 0);
  const std::vector<float> after = weights();
  const double keep = std::pow(0.9, 6.0 / 4.0);  // 6 micro-batches, 4 in a step
  for (size_t i = 0; i < kElements; ++i) {
    const double mean = (double{pushes[0][i]} + pushes[1][i] + pushes[2][i]) / 6.0;
    const bool averages = i >= kElements - 101 && i < kElements - 1;
    const double want =
        averages ? keep * before[i] + (1 - keep) * mean : before[i] - 0.5 * (6.0 / 4.0) * mean;
    ASSERT_NEAR(after[i], want, 1e-5) << "element " << i;
  }
}

TEST_F(BufferedTest, PushesOfAWholeStepGiveTheBitsOfSync) {
  const std::vector<float> first = gradient(1);
  const std::vector<float> second = gradient(2);
  std::vector<std::vector<float>> ends;
  for (const char* strategy : {"sync", "buffered:2"}) {
    make(std::string("strategy = ") + strategy + "\noptimizer = adam\nlr = 0.1\n");
    give_memory(kAnna, 0, {0, 2}, first);
    give_memory(kBert, 0, {2, 4}, second);
    EXPECT_EQ(rule_->updates(), 1);
    ends.push_back(weights());
  }
  EXPECT_EQ(ends[0], ends[1]);
}

TEST_F(BufferedTest, PullsAreAnsweredAtOnceWithTheCurrentVersion) {
  make("strategy = buffered:2\n");
  EXPECT_EQ(version(0), 0);
  give(kAnna, 0, {0, 2});
  rule_->apply_due();
  EXPECT_EQ(version(1), 0) << "pulls do not wait for the buffer";
  give(kAnna, 1, {0, 2});
  rule_->apply_due();
  EXPECT_EQ(version(2), 1);
}

TEST_F(BufferedTest, BarrierAppliesAPartialBuffer) {
  for (const char* barrier : {"eval-every", "checkpoint-every"}) {
    observer_ = {};
    make(std::string("strategy = buffered:3\nlr = 1\n") + barrier + " = 1\n");
    const float before = weight();
    give(kAnna, 0, {0, 2}, 2.0F);
    rule_->apply_due();
    EXPECT_EQ(weight(), before);
    give(kBert, 0, {2, 4}, 2.0F);
    EXPECT_TRUE(rule_->apply_due());
    EXPECT_EQ(observer_.barriers, std::vector<int64_t>{1});
    EXPECT_EQ(rule_->updates(), 1);
    EXPECT_FLOAT_EQ(weight(), before - 1.0F);
    // an evaluation may run while other workers open the next checkpoint, and keeps its weights
    const bool evaluates = std::string(barrier) == "eval-every";
    const Snapshot* const taken = evaluates ? &gate_->kept() : gate_->find(1);
    ASSERT_NE(taken, nullptr) << barrier;
    EXPECT_EQ(taken->weights.at(0).floats()[0], weight()) << barrier;
    EXPECT_EQ(taken->updates, 1);
    EXPECT_EQ(gate_->kept().step, evaluates ? 1 : -1);
    // the next buffer starts empty
    give(kAnna, 1, {0, 2});
    rule_->apply_due();
    EXPECT_EQ(rule_->updates(), 1);
    EXPECT_EQ(waiting(), 2);
  }
}

TEST_F(BufferedTest, LastStepAppliesAPartialBuffer) {
  make("strategy = buffered:1000\nsteps = 3\nlr = 1\n");
  const float before = weight();
  for (int64_t step = 0; step < 3; ++step) {
    EXPECT_EQ(rule_->updates(), 0);
    give(kAnna, step, {0, 2}, 2.0F);
    give(kBert, step, {2, 4}, 2.0F);
    rule_->apply_due();
  }
  EXPECT_EQ(observer_.barriers, std::vector<int64_t>{3});
  EXPECT_EQ(rule_->updates(), 1);
  EXPECT_FLOAT_EQ(weight(), before - 3.0F) << "three steps of mean 1, at rate 3";
  EXPECT_EQ(rule_->staleness(), (Histogram{{0, 6}}));
}

TEST_F(BufferedTest, StalenessOfEachPushIsCounted) {
  make("strategy = buffered:2\n");
  give(kAnna, 0, {0, 2}, 1.0F, 0);
  give(kAnna, 1, {0, 2}, 1.0F, 0);
  rule_->apply_due();
  EXPECT_EQ(rule_->staleness(), (Histogram{{0, 2}})) << "no update between read and push";
  give(kAnna, 2, {0, 2}, 1.0F, 1);
  give(kBert, 0, {2, 4}, 1.0F, 0);
  rule_->apply_due();
  EXPECT_EQ(rule_->staleness(), (Histogram{{0, 3}, {1, 1}}));
}

TEST_F(BufferedTest, CommittedMicroBatchesAreNotBufferedAgain) {
  make("strategy = buffered:2\nlr = 1\n");
  const float before = weight();
  give(kAnna, 0, {0, 2}, 2.0F);
  rule_->apply_due();
  give(kAnna, 0, {0, 2}, 1000.0F);
  give(kBert, 0, {0, 2}, 1000.0F);
  rule_->apply_due();
  EXPECT_EQ(rule_->updates(), 0) << "only one push is buffered";
  give(kBert, 0, {2, 4}, 2.0F);
  rule_->apply_due();
  EXPECT_EQ(rule_->updates(), 1);
  EXPECT_FLOAT_EQ(weight(), before - 1.0F);
  ASSERT_EQ(observer_.commits.size(), 4U);
  EXPECT_EQ(std::count_if(observer_.commits.begin(), observer_.commits.end(),
                          [](const Commit& commit) { return commit.counted; }),
            2);
}

TEST_F(BufferedTest, BufferedPushOfALostWorkerCountsOnce) {
  make("strategy = buffered:2\nlr = 1\n");
  const float before = weight();
  give(kAnna, 0, {0, 2}, 2.0F);
  rule_->apply_due();
  rule_->on_members({{kBert, 1}});
  give(kBert, 0, {0, 2}, 1000.0F);  // Anna's lease, computed again
  give(kBert, 0, {2, 4}, 2.0F);
  rule_->apply_due();
  EXPECT_EQ(rule_->updates(), 1);
  EXPECT_FLOAT_EQ(weight(), before - 1.0F);
  ASSERT_EQ(applied_.size(), 2U);
  EXPECT_EQ(applied_[0].rank(), 0);
  EXPECT_EQ(applied_[1].rank(), 1);
}

TEST_F(BufferedTest, RecordGroupsThePushesOfAnUpdate) {
  make("strategy = buffered:2\neval-every = 3\n");
  for (int64_t step = 0; step < 3; ++step) {
    give(kAnna, step, {0, 2});
    if (step < 2) give(kBert, step, {2, 4});
  }
  rule_->apply_due();
  EXPECT_EQ(applied_.size(), 4U) << "the fifth push waits";
  give(kBert, 2, {2, 4});
  rule_->apply_due();
  std::vector<bool> more;
  for (const wire::Applied& applied : applied_) more.push_back(applied.more());
  EXPECT_EQ(more, (std::vector<bool>{true, false, true, false, true, false}));
}

TEST_F(BufferedTest, NewestLeaseSetsTheRateAndTheMicroBatchesTheShare) {
  make("strategy = buffered:2\nlr = 1\nlr-schedule = step\nlr-step = 5\nlr-gamma = 0.5\n");
  const UpdateInfo info = buffered_update(job_, 10, 7, 6);
  EXPECT_EQ(info.learning_rate, 0.5);
  EXPECT_EQ(info.divisor, 6.0);
  EXPECT_EQ(info.share, 1.5);
  const float before = weight();
  give(kAnna, 7, {0, 2}, 2.0F);
  give(kBert, 0, {2, 4}, 2.0F);  // arrives later, but its lease is older
  rule_->apply_due();
  EXPECT_FLOAT_EQ(weight(), before - 0.5F);
}

TEST_F(BufferedTest, ClippingUsesTheNormOfTheMean) {
  make("strategy = buffered:2\nlr = 1\nclip-norm = 1\n");
  const float before = weight();
  give(kAnna, 0, {0, 2}, 100.0F);
  give(kBert, 0, {2, 4}, -100.0F);
  rule_->apply_due();
  EXPECT_FLOAT_EQ(weight(), before) << "each push alone would be clipped, but their mean is zero";
  give(kAnna, 1, {0, 2}, 100.0F);
  give(kBert, 1, {2, 4}, 100.0F);
  rule_->apply_due();
  // 1,948 trainable elements of mean 50
  EXPECT_NEAR(weight(), before - 1.0 / std::sqrt(1948.0), 1e-5);
}

TEST_F(BufferedTest, WorkerMayReuseItsMemoryWhileItsPushIsBuffered) {
  make("strategy = buffered:2\nlr = 1\n");
  const float before = weight();
  std::vector<float> memory(kElements, 2.0F);
  give_memory(kAnna, 0, {0, 2}, memory);
  std::fill(memory.begin(), memory.end(), 1e9F);
  give(kBert, 0, {2, 4}, 2.0F);
  rule_->apply_due();
  EXPECT_FLOAT_EQ(weight(), before - 1.0F);
}

TEST_F(BufferedTest, PayloadsInDeviceMemoryStayWithTheEngine) {
  make("strategy = buffered:2\n");
  ReceivedPush push;
  push.range = {0, 2};
  push.reads = {0};
  for (const int slice : shard_->slices()) {
    Payload payload = constant_payload(shard_->elements(slice), 1.0F);
    payload.on_device = true;
    rule_->take_part(push, slice, {{0, 2}, std::move(payload)});
  }
  rule_->take_push(std::move(push));
  rule_->apply_due();
  int visited = 0;
  rule_->for_waiting([&](PartialSum& part) {
    EXPECT_TRUE(part.payload.on_device);
    ++visited;
  });
  EXPECT_EQ(visited, 2);
}

TEST(Buffered, SizeOneIsAsyncAndSinglePushOptionsAreRefused) {
  EXPECT_EQ(job_of("strategy = buffered:1\nstaleness-aware = true\n").strategy.to_string(),
            "async");
  EXPECT_EQ(job_of("strategy = buffered:2\n").strategy.to_string(), "buffered:2");
  for (const std::string option : {"staleness-aware = true", "delay-compensation = 0.1"}) {
    EXPECT_THAT(
        thrown(ErrorCode::kUsage, [&] { job_of("strategy = buffered:2\n" + option + "\n"); }),
        testing::HasSubstr("an update is made of several: remove it, or take async or ssp:S"));
  }
}

}  // namespace
}  // namespace pushpull
