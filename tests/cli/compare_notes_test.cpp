#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/compare/compare_output.h"

namespace pushpull::compare_notes_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

CompareRun run_of(const std::string& strategy, int64_t workers, uint64_t seed) {
  CompareRun run;
  run.strategy = strategy;
  run.workers = workers;
  run.seed = seed;
  run.seconds = 10.0;
  run.initial_weights_sha256 = "weights" + std::to_string(seed);
  run.data_order_sha256 = "order" + std::to_string(seed);
  return run;
}

CompareResult result_of(std::vector<CompareRun> runs) {
  CompareResult result;
  result.workers = {1, 2};
  result.cores = 8;
  result.runs = std::move(runs);
  return result;
}

TEST(CompareNotes, TooFewCoresAreNoted) {
  CompareResult result = result_of({});
  EXPECT_THAT(notes_before(result, 1, 1, 8), IsEmpty());
  result.cores = 2;
  EXPECT_THAT(notes_before(result, 1, 1, 8),
              ElementsAre(AllOf(HasSubstr("3 processes"), HasSubstr("2 cores"),
                                HasSubstr("about sharing a core"))));
  result.cores = 4;
  EXPECT_THAT(notes_before(result, 1, 1, 8), IsEmpty());
  EXPECT_THAT(notes_before(result, 1, 2, 8), ElementsAre(HasSubstr("2 threads")));
}

TEST(CompareNotes, SparesAreNoted) {
  EXPECT_THAT(notes_before(result_of({}), 1, 1, 1),
              ElementsAre(AllOf(HasSubstr("of 2 workers, 1 is an idle spare"))));
}

TEST(CompareNotes, EqualStartsNeedNoNote) {
  const CompareResult result = result_of(
      {run_of("sync", 1, 7), run_of("async", 2, 7), run_of("sync", 1, 8), run_of("async", 2, 8)});
  EXPECT_THAT(notes_after(result), IsEmpty());
  EXPECT_THAT(same_start_lines(result),
              ElementsAre(AllOf(HasSubstr("seed 7, 2 runs"), HasSubstr("weights7")),
                          HasSubstr("order7"), HasSubstr("weights8"), HasSubstr("order8")));
}

TEST(CompareNotes, ARunWithOtherInitialWeightsIsNoted) {
  CompareRun other = run_of("async", 2, 7);
  other.initial_weights_sha256 = "elsewhere";
  const CompareResult result = result_of({run_of("sync", 1, 7), other});
  EXPECT_THAT(notes_after(result),
              ElementsAre(AllOf(HasSubstr("NOT COMPARABLE"), HasSubstr("seed 7"),
                                HasSubstr("initial weights"), HasSubstr("elsewhere"),
                                HasSubstr("async, 2 workers"))));
  EXPECT_THAT(same_start_lines(result)[0], HasSubstr("DIFFERENT"));
}

TEST(CompareNotes, BackupMayReadOtherSamplesButNotStartWithOtherWeights) {
  CompareRun backup = run_of("backup:1", 2, 7);
  backup.data_order_sha256 = "fewer";
  EXPECT_THAT(notes_after(result_of({run_of("sync", 1, 7), backup})), IsEmpty());
  backup.initial_weights_sha256 = "elsewhere";
  EXPECT_THAT(notes_after(result_of({run_of("sync", 1, 7), backup})),
              Contains(HasSubstr("NOT COMPARABLE")));
}

TEST(CompareNotes, AMissingHashIsNotAnEqualHash) {
  CompareRun silent = run_of("sync", 1, 7);
  silent.data_order_sha256.clear();
  EXPECT_THAT(notes_after(result_of({run_of("sync", 1, 7), silent})),
              ElementsAre(AllOf(HasSubstr("1 of 2 runs"), HasSubstr("data order"))));
}

TEST(CompareNotes, FailuresAreCountedAndTheFirstIsQuoted) {
  CompareRun failed = run_of("async", 2, 8);
  failed.failure = "[train] the loss is nan";
  failed.initial_weights_sha256 = "whatever";
  EXPECT_THAT(notes_after(result_of({run_of("async", 2, 7), failed})),
              ElementsAre(AllOf(HasSubstr("FAILED: async, 2 workers: 1 of 2"), HasSubstr("seed 8"),
                                HasSubstr("the loss is nan"))));
}

TEST(CompareNotes, AnUnreachedTargetIsNoted) {
  CompareRun reached = run_of("sync", 1, 7);
  reached.seconds_to_target = 3.0;
  CompareResult result = result_of({reached, run_of("sync", 1, 8)});
  EXPECT_THAT(notes_after(result), IsEmpty()) << "without a target";
  result.target = 0.97;
  EXPECT_THAT(notes_after(result), ElementsAre(AllOf(HasSubstr("sync, 1 worker"), HasSubstr("0.97"),
                                                     HasSubstr("never reached in 1 of 2"))));
}

TEST(CompareNotes, ShortRunsAreNoted) {
  CompareRun run = run_of("sync", 1, 7);
  run.seconds = 0.5;
  EXPECT_THAT(notes_after(result_of({run})), ElementsAre(HasSubstr("less than a second")));
}

TEST(CompareNotes, OtherProcessesOnTheMachineAreNoted) {
  CompareResult result = result_of({run_of("sync", 1, 7), run_of("sync", 1, 8)});
  result.cores = 4;
  result.runs[0].other_cores = 0.39;
  EXPECT_THAT(notes_after(result), IsEmpty());
  result.runs[1].other_cores = 1.25;
  EXPECT_THAT(notes_after(result),
              ElementsAre(AllOf(
                  HasSubstr("other programs used 31 % of the cores during sync, 1 worker, seed 8"),
                  HasSubstr("during 1 of 2 runs"))));
}

TEST(CompareNotes, ABestValueAtTheEndOfTheListIsNoted) {
  std::vector<CompareRun> tries;
  for (const char* tuned : {"lr=0.5 momentum=0", "lr=1 momentum=0", "lr=10 momentum=0"}) {
    tries.push_back(run_of("sync", 1, 7));
    tries.back().tuned = tuned;
  }
  CompareResult result = result_of({run_of("sync", 1, 7), run_of("sync", 1, 8)});
  result.tuning = tries;
  for (CompareRun& run : result.runs) run.tuned = "lr=10 momentum=0";
  EXPECT_THAT(notes_after(result),
              ElementsAre(AllOf(HasSubstr("lr, 10, is the largest"), Not(HasSubstr("momentum")))));
  for (CompareRun& run : result.runs) run.tuned = "lr=1 momentum=0";
  EXPECT_THAT(notes_after(result), IsEmpty());
}

}  // namespace
}  // namespace pushpull::compare_notes_test
