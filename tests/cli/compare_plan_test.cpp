#include "cli/compare/compare_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace pushpull {
namespace {

using ::testing::ElementsAre;

CompareOptions options_of(std::vector<std::string> strategies, std::vector<int64_t> workers,
                          std::vector<uint64_t> seeds) {
  CompareOptions options;
  options.strategies = std::move(strategies);
  options.workers = std::move(workers);
  options.seeds = std::move(seeds);
  return options;
}

CompareRun run_with(std::optional<double> accuracy, std::optional<double> seconds_to_target = {},
                    std::optional<double> loss = {}) {
  CompareRun run;
  run.test_value = accuracy;
  run.seconds_to_target = seconds_to_target;
  run.test_loss = loss;
  return run;
}

TEST(ComparePlan, EverySeedRunsEveryStrategyAndNumberOfWorkersOnce) {
  const auto plan = plan_repeats(options_of({"sync", "async", "ssp:4"}, {1, 2}, {7, 8, 9}), {});
  ASSERT_EQ(plan.size(), 18U);
  std::set<std::tuple<std::string, int64_t, uint64_t>> met;
  std::set<std::string> names;
  for (const PlannedRun& run : plan) {
    met.insert({run.variant.strategy, run.variant.workers, run.seed});
    names.insert(run.name);
  }
  EXPECT_EQ(met.size(), 18U);
  EXPECT_EQ(names.size(), 18U) << "two runs share a folder";
}

TEST(ComparePlan, RunsAreInterleavedSeedBySeedAndWorkersByWorkers) {
  const auto plan = plan_repeats(options_of({"sync", "async"}, {1, 2}, {7, 8}), {});
  std::vector<std::string> names(plan.size());
  std::ranges::transform(plan, names.begin(), [](const PlannedRun& run) { return run.name; });
  EXPECT_THAT(names, ElementsAre("sync-w1-s7", "async-w1-s7", "async-w2-s7", "sync-w2-s7",
                                 "async-w1-s8", "sync-w1-s8", "sync-w2-s8", "async-w2-s8"));
}

TEST(ComparePlan, CellsThatCannotBeAreLeftOut) {
  std::vector<std::string> names;
  for (const PlannedRun& run : plan_repeats(options_of({"sync", "backup:1"}, {1, 2}, {7}), {})) {
    names.push_back(run.name);
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("sync-w1-s7", "sync-w2-s7", "backup-1-w2-s7"));
}

TEST(ComparePlan, GroupsNeedAWorkerForEachStage) {
  CompareOptions options = options_of({"sync", "backup:1"}, {1, 2, 4}, {7});
  options.stages = {1, 2};
  std::vector<std::string> names;
  for (const PlannedRun& run : plan_repeats(options, {})) {
    names.push_back(run.name);
    EXPECT_EQ(keys_of(options, run, 5).at("stages"), std::to_string(run.variant.stages));
  }
  EXPECT_THAT(names,
              ::testing::UnorderedElementsAre("sync-w1-p1-s7", "sync-w2-p1-s7", "sync-w4-p1-s7",
                                              "sync-w2-p2-s7", "sync-w4-p2-s7", "backup-1-w2-p1-s7",
                                              "backup-1-w4-p1-s7", "backup-1-w4-p2-s7"));
  options.stages = {0};
  for (const PlannedRun& run : plan_repeats(options, {})) {
    EXPECT_FALSE(keys_of(options, run, 5).contains("stages")) << "not the job's own";
  }
}

TEST(ComparePlan, EveryLinkGetsTheSameRuns) {
  CompareOptions options = options_of({"sync", "async"}, {1, 2}, {7});
  options.links = {"", "100mbit,5ms,0.1%"};
  std::map<std::string, int64_t> runs;
  std::set<std::string> names;
  for (const PlannedRun& run : plan_repeats(options, {})) {
    ++runs[run.variant.link];
    names.insert(run.name);
  }
  EXPECT_EQ(runs, (std::map<std::string, int64_t>{{"", 4}, {"100mbit,5ms,0.1%", 4}}));
  EXPECT_EQ(names.size(), 8U);
  EXPECT_TRUE(names.contains("sync-w2-100mbit-5ms-0.1--s7"));
}

TEST(ComparePlan, EveryCodecGetsTheSameRunsIfTheStrategyPushes) {
  CompareOptions options = options_of({"sync", "allreduce:tree"}, {1, 2}, {7, 8});
  options.codecs = {"fp32", "topk:0.05"};
  std::map<std::string, int64_t> runs;
  std::set<std::string> names;
  for (const PlannedRun& run : plan_repeats(options, {})) {
    ++runs[run.variant.strategy + " " + run.variant.codec];
    names.insert(run.name);
    EXPECT_EQ(keys_of(options, run, 5).at("codec"), run.variant.codec);
  }
  EXPECT_EQ(runs, (std::map<std::string, int64_t>{
                      {"sync fp32", 4}, {"sync topk:0.05", 4}, {"allreduce:tree fp32", 4}}));
  EXPECT_EQ(names.size(), 12U);
  EXPECT_TRUE(names.contains("sync-w2-topk-0.05-s7"));
}

TEST(ComparePlan, WithoutCodecsTheJobsOwnIsUsed) {
  const CompareOptions options = options_of({"sync"}, {1}, {7});
  EXPECT_FALSE(keys_of(options, plan_repeats(options, {}).front(), 5).contains("codec"));
}

TEST(ComparePlan, NoStrategyAlwaysRunsFirst) {
  const std::vector<std::string> strategies = {"sync", "async", "ssp:4"};
  const auto plan = plan_repeats(options_of(strategies, {2}, {1, 2, 3}), {});
  std::set<std::string> first;
  for (size_t i = 0; i < plan.size(); i += strategies.size())
    first.insert(plan[i].variant.strategy);
  EXPECT_EQ(first.size(), 3U);
}

TEST(ComparePlan, EveryCellGetsTheSameTries) {
  CompareOptions options = options_of({"sync", "async"}, {1, 2}, {7, 8});
  options.tune = {{"lr", {"0.5", "1"}}, {"momentum", {"0", "0.9", "0.95"}}};
  std::map<Variant, std::multiset<std::string>> tries;
  for (const PlannedRun& run : plan_tries(options)) {
    EXPECT_EQ(run.seed, 7U);
    tries[run.variant].insert(to_string(run.tuned));
  }
  ASSERT_EQ(tries.size(), 4U);
  for (const auto& [variant, values] : tries) EXPECT_EQ(values, tries.begin()->second);
  EXPECT_EQ(tries.begin()->second.size(), 6U);
  EXPECT_EQ(tries.begin()->second.count("lr=0.5 momentum=0.95"), 1U);
}

TEST(ComparePlan, WithoutTuneThereAreNoTries) {
  EXPECT_TRUE(plan_tries(options_of({"sync"}, {1}, {7})).empty());
}

TEST(ComparePlan, RepeatsUseTheBestTryOfTheirOwnCell) {
  const std::map<Variant, Tuned> chosen = {{{"sync", 1}, {{"lr", "0.5"}}},
                                           {{"sync", 2}, {{"lr", "1"}}}};
  const auto plan = plan_repeats(options_of({"sync"}, {1, 2}, {7}), chosen);
  ASSERT_EQ(plan.size(), 2U);
  EXPECT_EQ(plan[0].tuned.at("lr"), "0.5");
  EXPECT_EQ(plan[1].tuned.at("lr"), "1");
  EXPECT_EQ(keys_of(options_of({"sync"}, {1}, {7}), plan[1], 5).at("lr"), "1");
}

TEST(ComparePlan, TheBestTryReachesTheTargetFirst) {
  EXPECT_EQ(best_try({run_with(0.99), run_with(0.97, 20.0), run_with(0.97, 10.0)}), 2U);
  EXPECT_EQ(best_try({run_with(0.97, 10.0), run_with(0.98, 10.0)}), 1U) << "accuracy breaks ties";
}

TEST(ComparePlan, WithoutATargetTheBestTryIsTheMostAccurate) {
  EXPECT_EQ(best_try({run_with(0.90), run_with(0.95), run_with(0.93)}), 1U);
  EXPECT_EQ(best_try({run_with(0.95, {}, 0.3), run_with(0.95, {}, 0.2)}), 1U) << "loss breaks ties";
  EXPECT_EQ(best_try({run_with(0.95), run_with(0.95)}), 0U) << "the first one breaks ties";
  EXPECT_EQ(best_try({run_with({}), run_with(0.1)}), 1U);
}

TEST(ComparePlan, TheBestTryOfAMetricThatFallsIsTheLowest) {
  std::vector<CompareRun> tries = {run_with(9.5), run_with(6.5), run_with({})};
  for (CompareRun& run : tries) run.metric = "perplexity";
  EXPECT_EQ(best_try(tries), 1U);
}

TEST(ComparePlan, AFailedTryIsNeverTheBest) {
  CompareRun failed = run_with(0.99, 1.0);
  failed.failure = "diverged";
  EXPECT_EQ(best_try({failed, run_with(0.1)}), 1U);
  EXPECT_EQ(best_try({failed, failed}), std::nullopt);
}

TEST(ComparePlan, EvaluatesAboutTwentyTimesAndAtTheEndOfLocalRounds) {
  EXPECT_EQ(eval_every(2000, {"sync", "async"}), 100);
  EXPECT_EQ(eval_every(5, {"sync"}), 1);
  EXPECT_EQ(eval_every(120, {"sync", "local:8"}), 8);
  EXPECT_EQ(eval_every(2000, {"local:8", "local:12"}) % 24, 0);
  EXPECT_EQ(eval_every(10, {"local:1000"}), 10);
}

TEST(ComparePlan, KeysOfARunOverrideTheFlagsOfAllRuns) {
  CompareOptions options = options_of({"async"}, {1}, {7});
  options.keys = {{"lr", "0.1"}, {"seed", "7"}, {"eval-every", "1"}, {"epochs", "3"}};
  PlannedRun run;
  run.variant = {"async", 1};
  run.seed = 9;
  run.tuned["lr"] = "0.5";
  const auto keys = keys_of(options, run, 50);
  EXPECT_EQ(keys.at("strategy"), "async");
  EXPECT_EQ(keys.at("seed"), "9");
  EXPECT_EQ(keys.at("lr"), "0.5");
  EXPECT_EQ(keys.at("eval-every"), "50");
  EXPECT_EQ(keys.at("epochs"), "3");
  EXPECT_EQ(keys.at("checkpoint-dir"), "");
}

}  // namespace
}  // namespace pushpull
