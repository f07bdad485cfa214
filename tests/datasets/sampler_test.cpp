#include "datasets/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "common/base/error.h"
#include "common/job/job.h"
#include "datasets/dummy.h"
#include "tests/common/thrown.h"
#include "tests/datasets/idx_writer.h"
#include "tests/datasets/questions.h"

namespace pushpull {
namespace {

using testing::ElementsAre;

Job small_job(bool shuffle) {
  Job job;
  job.global_batch = 4;
  job.micro_batch = 2;
  job.shuffle = shuffle;
  return job;
}

std::vector<int64_t> epoch_of(Sampler& sampler, int64_t epoch) {
  std::vector<int64_t> all;
  for (int64_t s = 0; s < sampler.steps_per_epoch(); ++s) {
    for (int64_t m = 0; m < 2; ++m) {
      const auto part = sampler.indices(epoch * sampler.steps_per_epoch() + s, m);
      all.insert(all.end(), part.begin(), part.end());
    }
  }
  return all;
}

TEST(Sampler, KeepsTheOrderWithoutShuffle) {
  Sampler sampler(small_job(false), 11);
  EXPECT_EQ(sampler.steps_per_epoch(), 2);
  EXPECT_THAT(sampler.indices(0, 0), ElementsAre(0, 1));
  EXPECT_THAT(sampler.indices(0, 1), ElementsAre(2, 3));
  EXPECT_THAT(sampler.indices(1, 1), ElementsAre(6, 7));
  EXPECT_THAT(sampler.indices(2, 0), ElementsAre(0, 1));  // the next epoch
}

TEST(Sampler, DropsTheIncompleteBatch) {
  Sampler sampler(small_job(true), 11);
  const std::vector<int64_t> seen = epoch_of(sampler, 0);
  EXPECT_EQ(seen.size(), 8U);
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 8U);
  EXPECT_THAT(seen, testing::Each(testing::AllOf(testing::Ge(0), testing::Lt(11))));
}

TEST(Sampler, ShufflesEachEpochDifferently) {
  Sampler sampler(small_job(true), 1000);
  const std::vector<int64_t> first = epoch_of(sampler, 0);
  const std::vector<int64_t> second = epoch_of(sampler, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set<int64_t>(second.begin(), second.end()).size(), 1000U);
  EXPECT_EQ(epoch_of(sampler, 0), first);  // an earlier epoch repeats
}

TEST(Sampler, IsEqualInEveryProcessWithTheSeed) {
  Job job = small_job(true);
  Sampler one(job, 100);
  Sampler same(job, 100);
  job.seed = 2;
  Sampler other(job, 100);
  // the second process reads in another order
  const std::vector<int64_t> late(same.indices(60, 1).begin(), same.indices(60, 1).end());
  EXPECT_EQ(epoch_of(one, 3), epoch_of(same, 3));
  EXPECT_NE(epoch_of(one, 3), epoch_of(other, 3));
  EXPECT_THAT(one.indices(60, 1), testing::ElementsAreArray(late));
}

TEST(Sampler, RefusesIndicesOutOfRange) {
  Sampler sampler(small_job(true), 8);
  EXPECT_THROW(sampler.indices(-1, 0), Error);
  EXPECT_THROW(sampler.indices(0, -1), Error);
  EXPECT_THROW(sampler.indices(0, 2), Error);
  EXPECT_THROW(Sampler(small_job(true), 3), Error);
}

// 900 samples of class 4, 90 of class 7, 10 of class 0.
std::vector<int32_t> uneven_classes() {
  std::vector<int32_t> classes(900, 4);
  classes.insert(classes.end(), 90, 7);
  classes.insert(classes.begin() + 500, 10, 0);
  return classes;
}

Job weighted_job() {
  Job job = small_job(true);
  job.sampler = SamplerKind::kWeighted;
  return job;
}

TEST(WeightedSampler, DrawsEachClassEquallyOftenAndItsSamplesToo) {
  const std::vector<int32_t> classes = uneven_classes();
  Sampler sampler(weighted_job(), 1000, classes);
  EXPECT_EQ(sampler.steps_per_epoch(), 250);
  std::map<int32_t, int> of_class;
  std::map<int64_t, int> of_sample;
  for (int64_t epoch = 0; epoch < 30; ++epoch) {
    for (const int64_t sample : epoch_of(sampler, epoch)) {
      ++of_class[classes.at(static_cast<size_t>(sample))];
      ++of_sample[sample];
    }
  }
  EXPECT_EQ(of_class.size(), 3U);
  for (const auto& [label, count] : of_class) EXPECT_NEAR(count, 10'000, 400) << label;
  for (int64_t sample = 500; sample < 510; ++sample) EXPECT_NEAR(of_sample[sample], 1000, 150);
}

TEST(WeightedSampler, DependsOnSeedEpochAndPlaceAlone) {
  const std::vector<int32_t> classes = uneven_classes();
  Job job = weighted_job();
  Sampler one(job, 1000, classes);
  Sampler same(job, 1000, classes);
  // as after a resume: without the draws before it
  const std::vector<int64_t> late(same.indices(700, 1).begin(), same.indices(700, 1).end());
  const std::vector<int64_t> first = epoch_of(one, 0);
  EXPECT_NE(first, epoch_of(one, 1));
  EXPECT_EQ(first, epoch_of(same, 0));
  EXPECT_THAT(one.indices(700, 1), testing::ElementsAreArray(late));
  // other micro-batches are other parts of the same row
  job.micro_batch = 4;
  Sampler whole(job, 1000, classes);
  EXPECT_THAT(whole.indices(0, 0), ElementsAre(first[0], first[1], first[2], first[3]));
  job.micro_batch = 2;
  job.seed = 2;
  Sampler other(job, 1000, classes);
  EXPECT_NE(epoch_of(other, 0), first);
  job.shuffle = false;
  Sampler unshuffled(job, 1000, classes);
  EXPECT_EQ(epoch_of(unshuffled, 0), epoch_of(other, 0));
}

TEST(WeightedSampler, DrawsByTheWeightsOfTheSamples) {
  const std::vector<double> weights{0.0, 3.0, 0.0, 0.0, 1.0, 0.5, 0.0, 0.0};
  Job job = weighted_job();
  Sampler sampler(job, 8, {}, weights);
  std::map<int64_t, int> drawn;
  for (int64_t epoch = 0; epoch < 4500; ++epoch) {
    for (const int64_t sample : epoch_of(sampler, epoch)) ++drawn[sample];
  }
  EXPECT_EQ(drawn.size(), 3U);
  EXPECT_NEAR(drawn[1], 24'000, 400);
  EXPECT_NEAR(drawn[4], 8'000, 300);
  EXPECT_NEAR(drawn[5], 4'000, 250);
  // as after a resume
  Sampler other(job, 8, {}, weights);
  const std::vector<int64_t> late(other.indices(701, 1).begin(), other.indices(701, 1).end());
  EXPECT_THAT(sampler.indices(701, 1), testing::ElementsAreArray(late));
  // each of the last ones alone
  EXPECT_THAT(Sampler(job, 4, {}, std::vector<double>{0, 0, 0, 1e-300}).indices(5, 0),
              ElementsAre(3, 3));
}

class InOrder final : public Dataset {
 public:
  int64_t size(Split /*split*/) const override { return int64_t{1} << 40; }
  const FieldTable& fields() const override { return fields_; }
  const std::string& digest() const override { return digest_; }
  void read(const Request& /*request*/, float* /*block*/) const override {}
  bool in_order() const override { return true; }

 private:
  const FieldTable fields_;
  const std::string digest_;
};

TEST(Sampler, TakesSamplesOfAProgramInTheirOrderHoweverManyThereAre) {
  Sampler sampler(small_job(true), InOrder());
  EXPECT_EQ(sampler.steps_per_epoch(), int64_t{1} << 38);
  EXPECT_THAT(sampler.indices(3, 1), ElementsAre(14, 15));
  EXPECT_THAT(sampler.indices((int64_t{1} << 38) + 1, 0), ElementsAre(4, 5));
}

TEST(WeightedSampler, TakesTheClassesFromTheFieldClassOrLabel) {
  Job job = weighted_job();
  job.sequence = 16;
  job.train_samples = 150;
  const DummyQa questions(job);
  const std::vector<int32_t> kinds = classes_for_sampler(job, questions);
  std::vector<int32_t> expected;
  for (const Question& q : read_questions(questions, Split::kTrain)) expected.push_back(q.kind);
  EXPECT_EQ(kinds, expected);
  job.input = {1, 2, 2};
  const Dummy images(job);
  EXPECT_EQ(classes_for_sampler(job, images).size(), 150U);
  job.sampler = SamplerKind::kUniform;
  EXPECT_TRUE(classes_for_sampler(job, images).empty());
}

TEST(WeightedSampler, RefusesSamplesWithoutAClass) {
  TestFolder folder;
  Job job = weighted_job();
  job.dataset = "text";
  job.sequence = 4;
  job.data_dir = folder.file("text.txt");
  folder.write("text.txt", std::string(100, 'a'));
  const std::unique_ptr<Dataset> text = open_dataset(job);
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { classes_for_sampler(job, *text); }),
              testing::HasSubstr("dataset text has ids, target"));
}

}  // namespace
}  // namespace pushpull
