#include "ps/record/run_record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

wire::ChunkResult chunk(int64_t index, int64_t correct, double loss) {
  wire::ChunkResult out;
  out.set_chunk(index);
  out.set_correct(correct);
  out.set_loss(loss);
  return out;
}

TEST(EvaluationRecord, CountsEachChunkOnceHoweverOftenItComes) {
  EvaluationRecord record(10, 4);
  EXPECT_EQ(record.chunks(), 3);
  EXPECT_FALSE(record.add(5, chunk(0, 3, 1.0)));
  EXPECT_FALSE(record.add(5, chunk(0, 3, 1.0)));
  EXPECT_FALSE(record.add(5, chunk(2, 1, 0.5)));
  EXPECT_FALSE(record.complete(5));
  const auto done = record.add(5, chunk(1, 4, 2.5));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->step, 5);
  EXPECT_EQ(done->correct, 8);
  EXPECT_EQ(done->total, 10);
  EXPECT_DOUBLE_EQ(done->loss, 0.4);
  EXPECT_TRUE(record.complete(5));
  EXPECT_FALSE(record.add(5, chunk(1, 4, 2.5))) << "complete only once";
}

TEST(EvaluationRecord, TheLossHasTheSameBitsInAnyOrderOfArrival) {
  std::vector<wire::ChunkResult> chunks;
  for (int i = 0; i < 40; ++i) chunks.push_back(chunk(i, i, 1.0 / (i + 0.7)));
  std::mt19937_64 random(1);
  std::optional<double> want;
  for (int round = 0; round < 20; ++round) {
    std::shuffle(chunks.begin(), chunks.end(), random);
    EvaluationRecord record(160, 4);
    std::optional<Evaluation> done;
    for (const auto& c : chunks) done = record.add(1, c);
    ASSERT_TRUE(done);
    EXPECT_EQ(done->correct, 780);
    if (!want) want = done->loss;
    EXPECT_EQ(done->loss, *want);
  }
}

TEST(EvaluationRecord, ChunksThatDoNotExistAreIgnored) {
  EvaluationRecord record(4, 4);
  EXPECT_FALSE(record.add(1, chunk(-1, 4, 1)));
  EXPECT_FALSE(record.add(1, chunk(1, 4, 1)));
  EXPECT_FALSE(record.add(1, chunk(INT64_MAX, 4, 1)));
  EXPECT_TRUE(record.add(1, chunk(0, 4, 1)));
}

TEST(EvaluationRecord, ANewerEvaluationOvertakesAnUnfinishedOne) {
  EvaluationRecord record(8, 4);
  record.add(10, chunk(0, 1, 1));
  record.add(20, chunk(0, 1, 1));
  ASSERT_TRUE(record.add(20, chunk(1, 1, 1)));
  EXPECT_TRUE(record.complete(10)) << "nobody will finish it";
  EXPECT_FALSE(record.add(10, chunk(1, 1, 1)));
  EXPECT_EQ(record.newest()->step, 20);
}

TEST(EvaluationRecord, NoTestSamplesAreSoonEvaluated) {
  const EvaluationRecord record(0, 4);
  EXPECT_TRUE(record.complete(1'000'000));
  EXPECT_FALSE(record.newest());
}

Commit commit(int64_t step, Range range, std::vector<float> losses, bool counted = true) {
  return {1, step, range, std::move(losses), counted};
}

TEST(TrainingRecord, CountsSamplesByRankAndOnce) {
  TrainingRecord record(job_of(), 2, 0);
  record.add(commit(0, {0, 2}, {1, 1}), 0);
  record.add(commit(0, {2, 4}, {1, 1}), 1);
  record.add(commit(0, {2, 4}, {1, 1}, false), 1);
  record.add(commit(1, {0, 2}, {1, 1}), -1);  // of one that is gone by now
  record.add(commit(1, {2, 4}, {1, 1}), 7);
  EXPECT_EQ(record.samples(), 16);
  EXPECT_EQ(record.samples_per_worker(), (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(record.floor(), 2);
}

TEST(TrainingRecord, AddsUpTheHashesOfWhatCounts) {
  const auto number = [](int last) {
    std::string bytes(HashSum::kBytes, '\0');
    bytes.back() = static_cast<char>(last);
    return HashSum::from_bytes(bytes);
  };
  TrainingRecord record(job_of(), 2, 0);
  Commit first = commit(0, {0, 2}, {1, 1});
  first.data_hash = number(5);
  Commit again = commit(0, {0, 2}, {1, 1}, false);
  again.data_hash = number(5);
  Commit later = commit(2, {2, 4}, {1, 1});
  later.data_hash = number(8);
  for (const Commit& c : {first, again, later}) record.add(c, 0);
  EXPECT_EQ(record.data_hash(), number(13));
}

TEST(TrainingRecord, TheLossIsTheMeanOfTheNewestWholeStep) {
  TrainingRecord record(job_of(), 2, 3);
  EXPECT_FALSE(record.newest_loss());
  EXPECT_FALSE(record.mean_loss(5));
  record.add(commit(4, {0, 4}, {4, 4, 4, 4}), 0);
  EXPECT_FALSE(record.newest_loss()) << "step 3 is not whole";
  record.add(commit(3, {2, 4}, {3, 4}), 0);
  record.add(commit(3, {0, 2}, {1, 2}), 0);
  EXPECT_EQ(record.newest_loss(), 4.0);
  EXPECT_EQ(record.floor(), 5);
  EXPECT_EQ(record.mean_loss(1), 4.0);
  EXPECT_EQ(record.mean_loss(2), 3.25);
  EXPECT_EQ(record.mean_loss(100), 3.25);
}

TEST(TrainingRecord, UnderBackupAStepIsWholeWithoutTheDroppedPushes) {
  TrainingRecord record(job_of("strategy = backup:1\n"), 3, 0);  // shares of 1, 1 and 2
  record.add(commit(0, {2, 4}, {3, 4}), 2);
  EXPECT_FALSE(record.newest_loss());
  record.add(commit(0, {0, 1}, {2}), 0);
  Commit late = commit(0, {1, 2}, {1e9F}, false);
  late.dropped = true;
  record.add(late, 1);
  EXPECT_EQ(record.floor(), 1);
  EXPECT_EQ(record.newest_loss(), 3.0) << "of the micro-batches that are in";
  EXPECT_EQ(record.samples(), 6);
  EXPECT_EQ(record.pushes_applied(), 2);
  EXPECT_EQ(record.pushes_dropped(), 1);
  EXPECT_EQ(record.pushes_dropped_per_worker(), (std::vector<int64_t>{0, 1, 0}));
}

TEST(TrainingRecord, APushOfARoundCountsForEachOfItsSteps) {
  TrainingRecord record(job_of("strategy = local:2\n"), 2, 0);
  Commit round = commit(0, {0, 2}, {1, 2, 10, 20});
  round.steps = 2;
  record.add(round, 0);
  EXPECT_EQ(record.floor(), 0);
  round = commit(0, {2, 4}, {3, 4, 30, 40});
  round.steps = 2;
  record.add(round, 1);
  EXPECT_EQ(record.floor(), 2);
  EXPECT_EQ(record.newest_loss(), 25.0);
  EXPECT_EQ(record.mean_loss(2), 13.75);
  EXPECT_EQ(record.samples(), 16);
  EXPECT_EQ(record.pushes_applied(), 2);
}

TEST(TrainingRecord, AVeryLongRunKeepsOnlyTheNewestLosses) {
  TrainingRecord record(job_of(), 1, 0);
  for (int64_t step = 0; step <= static_cast<int64_t>(TrainingRecord::kMaxLosses); ++step) {
    record.add({kAnna, step, {0, 4}, std::vector<float>(4, step == 0 ? 1e9F : 1.0F), true}, 0);
  }
  EXPECT_EQ(record.mean_loss(INT64_MAX), 1.0);
}

}  // namespace
}  // namespace pushpull
