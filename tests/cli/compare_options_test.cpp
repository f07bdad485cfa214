#include "cli/compare/compare_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "tests/common/scratch_folder.h"
#include "tests/common/thrown.h"

namespace pushpull::compare_options_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

CompareOptions parse(std::vector<const char*> words) {
  words.insert(words.begin(), "compare");
  const std::vector<std::string> gathered =
      gather_repeated(static_cast<int>(words.size()), words.data());
  words.clear();
  for (const std::string& word : gathered) words.push_back(word.c_str());
  return parse_compare(
      parse_command_line(static_cast<int>(words.size()), words.data(), compare_options()), "typed");
}

// Returns the error, or "".
std::string refusal(std::vector<const char*> words) {
  words.push_back("--steps=10");
  return thrown(ErrorCode::kUsage, [&] { parse(words); });
}

TEST(CompareOptions, ReadsListsSeedsTargetAndKeysOfTheJob) {
  const CompareOptions options = parse({"--steps=10",
                                        "--strategies",
                                        "sync,ssp:4,local:8,allreduce:ring",
                                        "--workers",
                                        "1,2,4",
                                        "--seeds",
                                        "3",
                                        "--servers=2",
                                        "--target-accuracy",
                                        "0.97",
                                        "--seed",
                                        "5",
                                        "--lr=0.2",
                                        "--straggler",
                                        "0:4",
                                        "--out",
                                        "o",
                                        "--device",
                                        "cuda:0,cuda:1",
                                        "--server-device",
                                        "cuda:2"});
  EXPECT_THAT(options.strategies, ElementsAre("sync", "ssp:4", "local:8", "allreduce:ring"));
  EXPECT_THAT(options.workers, ElementsAre(1, 2, 4));
  EXPECT_THAT(options.seeds, ElementsAre(5, 6, 7));
  EXPECT_EQ(options.servers, 2);
  EXPECT_EQ(options.target.value().value, 0.97);
  EXPECT_EQ(options.straggler, "0:4");
  EXPECT_EQ(options.out, "o");
  EXPECT_EQ(options.device, "cuda:0,cuda:1");
  EXPECT_EQ(options.server_device, "cuda:2");
  EXPECT_EQ(options.command, "typed");
  EXPECT_EQ(options.keys.at("lr"), "0.2");
}

TEST(CompareOptions, HasDefaultsForAllButTheJob) {
  const CompareOptions options = parse({"--steps=10"});
  EXPECT_THAT(options.strategies, ElementsAre("sync", "async", "ssp:4"));
  EXPECT_THAT(options.workers, ElementsAre(1, 2));
  EXPECT_EQ(options.seeds.size(), 3U);
  EXPECT_EQ(options.straggler, "");
  EXPECT_EQ(options.device, "");
  EXPECT_EQ(options.server_device, "");
  EXPECT_FALSE(options.target);
  EXPECT_FALSE(options.keep_checkpoints);
}

TEST(CompareOptions, TargetIsAnyNumber) {
  const CompareOptions options = parse({"--steps=10", "--target", "6.5"});
  EXPECT_EQ(options.target.value().value, 6.5);
  EXPECT_EQ(options.target.value().name, MeasureName{});
  EXPECT_FALSE(options.target_is_accuracy);
}

TEST(CompareOptions, TargetNamesAMeasureAsStopWhenDoes) {
  const auto target = [](const char* text) {
    return parse({"--steps=10", "--target", text}).target.value();
  };
  EXPECT_EQ(target("f1/value:0.9").name, (MeasureName{"f1", "value"}));
  EXPECT_EQ(target("f1/value:0.9").value, 0.9);
  EXPECT_EQ(target("loss:0.3").name, (MeasureName{"", "loss"}));
}

struct Wrong {
  std::vector<const char*> words;
  const char* named;
};

TEST(CompareOptions, RefusesAndNamesMistakes) {
  for (const auto& [words, named] :
       std::vector<Wrong>{{{"--device", "gpu"}, "[device] --device gpu"},
                          {{"--device", "cpu,cuda"}, "[device] --device cpu,cuda"},
                          {{"--server-device", "gpu"}, "[device] --server-device gpu"},
                          {{"--server-device", "cuda:0,cuda:1"}, "--server-device cuda:0,cuda:1"},
                          {{"--strategies", "sync,psync"}, "psync"},
                          {{"--strategies", "local:0"}, "local:0"},
                          {{"--strategies", "sync,"}, "--strategies"},
                          {{"--strategies", "sync,async,sync"}, "'sync'"},
                          {{"--strategies", "sync,ssp:0"}, "'ssp:0'"},
                          {{"--strategies", "backup:9", "--workers", "2"}, "backup:9"},
                          {{"--seeds", "0"}, "--seeds: '0'"},
                          {{"--workers", "0"}, "--workers: '0'"},
                          {{"--workers", "1,two"}, "--workers: 'two'"},
                          {{"--workers", "1,2,1"}, "--workers: 1"},
                          {{"--workers", "1,99999"}, "--workers: '99999'"},
                          {{"--target-accuracy", "97"}, "--target-accuracy: '97'"},
                          {{"--target-accuracy", "0"}, "--target-accuracy: '0'"},
                          {{"--target-accuracy", "nan"}, "--target-accuracy: 'nan'"},
                          {{"--target", "low"}, "--target: 'low'"},
                          {{"--target", "f1:0.9"}, "--target: 'f1:0.9'"},
                          {{"--target", "loss:low"}, "--target: 'loss:low'"},
                          {{"--target", "6", "--target-accuracy", "0.9"}, "one target"},
                          {{"--straggler", "1:4", "--workers", "2,1"}, "--straggler 1:4"},
                          {{"--straggler", "fast"}, "straggler = fast"},
                          {{"job.ini"}, "'job.ini'"},
                          {{"--strategy", "sync"}, "--strategy"},
                          {{"--checkpoint-dir", "x"}, "--checkpoint-dir"},
                          {{"--lr", "fast"}, "lr = fast"},
                          {{"--seed", "18446744073709551615"}, "seed"},
                          {{"--link", "1gbit,1ms", "--link", "1gbit,1ms"}, "--link: 1gbit,1ms"},
                          {{"--link="}, "--link"},
                          {{"--link"}, "link"},
                          {{"--per-host", "2"}, "--per-host 2: needs --link"},
                          {{"--per-host", "2", "--link", "none"}, "--per-host 2: needs --link"},
                          {{"--per-host", "0", "--link", "any,1ms"}, "--per-host: '0'"},
                          {{"--over", "pbs"}, "--over is 'pbs': must be slurm or mpi"},
                          {{"--over-args=x"}, "--over-args needs --over"},
                          {{"--over", "mpi", "--link", "any,1ms"}, "--over and --link"},
                          {{"--codecs", "fp32,int4"}, "int4"},
                          {{"--codecs", "int8,topk:0.5,int8"}, "--codecs: int8"},
                          {{"--codecs", "int8", "--codec", "bf16"}, "--codec"},
                          {{"--stages", "1,two"}, "--stages: 'two'"},
                          {{"--stages", "1,0"}, "--stages: '0'"},
                          {{"--stages", "2,2"}, "--stages: 2 is given twice"},
                          {{"--stages", "1,4", "--workers", "1,2"},
                           "--stages 4: a group needs as many workers, and --workers has 2"},
                          {{"--tune", "lr"}, "--tune: 'lr'"},
                          {{"--tune", "--out", "x"}, "tune"},
                          {{"--tune", "lr=0.5,fast"}, "--tune lr: 'fast'"},
                          {{"--tune", "lr="}, "--tune lr: ''"},
                          {{"--tune="}, "--tune: ''"},
                          {{"--tune", "lr=0.5,0.50"}, "--tune lr: 0.50"},
                          {{"--tune", "lr=1", "--tune", "lr=2"}, "--tune: lr"},
                          {{"--tune", "lr=0.5,-1"}, "lr=-1"},
                          {{"--tune", "mometum=0.5"}, "'mometum'"},
                          {{"--tune", "model=1"}, "'model'"},
                          {{"--tune", "steps=1,2"}, "'steps'"},
                          {{"--worker", "sh"}, "[compare] --worker: the job has model = mlp"},
                          {{"--model=external"}, "[compare] model = external"},
                          {{"--model=external", "--worker", "sh 'a"}, "' without its end"}}) {
    EXPECT_THAT(refusal(words), AllOf(StartsWith("["), HasSubstr(named)));
  }
}

TEST(CompareOptions, AcceptsValidOptions) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({"--device", "auto"}), "");
  EXPECT_EQ(refusal({"--server-device", "auto"}), "");
  EXPECT_EQ(refusal({"--strategies", "backup:1", "--workers", "2,1"}), "")
      << "one worker is left out";
  EXPECT_EQ(refusal({"--tune", "outer-lr=0.5,1", "--strategies", "local:4"}), "");
}

TEST(CompareOptions, ReadsRepeatedTune) {
  const CompareOptions options =
      parse({"--steps=10", "--tune", "lr=0.5,1", "--tune=momentum=0,0.9,0.95"});
  ASSERT_EQ(options.tune.size(), 2U);
  EXPECT_EQ(options.tune[0].key, "lr");
  EXPECT_THAT(options.tune[0].values, ElementsAre("0.5", "1"));
  EXPECT_EQ(options.tune[1].key, "momentum");
  EXPECT_THAT(options.tune[1].values, ElementsAre("0", "0.9", "0.95"));
}

TEST(CompareOptions, ReadsRepeatedLinks) {
  EXPECT_THAT(parse({"--steps=10"}).links, ElementsAre(""));
  EXPECT_THAT(parse({"--steps=10", "--link", "none", "--link=100mbit,5ms"}).links,
              ElementsAre("", "100mbit,5ms"));
}

TEST(CompareOptions, ReadsCodecs) {
  EXPECT_THAT(parse({"--steps=10"}).codecs, ElementsAre(""));
  EXPECT_THAT(parse({"--steps=10"}).stages, ElementsAre(0));
  EXPECT_THAT(parse({"--steps=10", "--strategies", "sync", "--stages", "1, 2"}).stages,
              ElementsAre(1, 2));
  EXPECT_THAT(parse({"--steps=10", "--codecs", "fp32,int8,topk:0.050"}).codecs,
              ElementsAre("fp32", "int8", "topk:0.05"));
}

TEST(CompareOptions, ACodecDoesNotKeepAllReduceFromRunning) {
  EXPECT_THAT(parse({"--steps=10", "--strategies", "sync,allreduce:tree", "--codec", "int8",
                     "--codec-tensors", "*.bias=fp32", "--pull-codec", "bf16"})
                  .strategies,
              ElementsAre("sync", "allreduce:tree"));
}

TEST(CompareOptions, RunsStrategiesThatNeedDifferentJobFiles) {
  const ScratchFolder folder;
  const std::string job = folder / "job.ini";
  write_bytes(job,
              "steps = 10\nstrategy = async\nstaleness-aware = true\nrecord = r\n"
              "on-worker-loss = continue\nresume = true\ncheckpoint-every = 5\n");
  const CompareOptions options =
      parse({"--job", job.c_str(), "--strategies", "sync,async,allreduce:tree"});
  EXPECT_FALSE(options.job.staleness_aware) << "not an option of sync";
  EXPECT_EQ(options.job.record, "");
  EXPECT_EQ(options.job.resume, Resume::kFalse);
  EXPECT_EQ(options.job.checkpoint_every, 0);
}

TEST(CompareOptions, OptionsForSinglePushesAreOffForBufferedStrategies) {
  const auto keys = keys_of_strategy("buffered:4");
  EXPECT_EQ(keys.at("strategy"), "buffered:4");
  EXPECT_EQ(keys.at("staleness-aware"), "false");
  EXPECT_EQ(keys.at("delay-compensation"), "0");
  EXPECT_FALSE(keys_of_strategy("async").contains("staleness-aware"));
}

TEST(CompareOptions, TheSharedJobHasOnlyTheLinesOfAllRuns) {
  Job one;
  one.steps = 10;
  Job two = one;
  two.seed = 2;
  two.strategy = Strategy::parse("async");
  const std::string ini = shared_ini({one, two});
  EXPECT_THAT(ini, AllOf(HasSubstr("steps = 10\n"), HasSubstr("lr = ")));
  EXPECT_THAT(ini, AllOf(Not(HasSubstr("seed")), Not(HasSubstr("strategy"))));
}

}  // namespace
}  // namespace pushpull::compare_options_test
