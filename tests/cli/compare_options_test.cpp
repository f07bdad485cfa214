#include "cli/compare/compare_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "tests/common/scratch_folder.h"

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

// The error, "" where there is none.
std::string refusal(std::vector<const char*> words) {
  words.push_back("--steps=10");
  try {
    parse(words);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage) << error.what();
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    return error.what();
  }
  return "";
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
  EXPECT_EQ(options.target_accuracy, 0.97);
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
  EXPECT_FALSE(options.target_accuracy);
  EXPECT_FALSE(options.keep_checkpoints);
}

TEST(CompareOptions, NamesTheWordThatIsWrongAndTheWayOut) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({"--device", "auto"}), "");
  EXPECT_THAT(refusal({"--device", "gpu"}),
              AllOf(StartsWith("[device] --device gpu: gpu is unknown"), HasSubstr("cuda:N")));
  EXPECT_THAT(refusal({"--device", "cpu,cuda"}), HasSubstr("cpu stands alone"));
  EXPECT_EQ(refusal({"--server-device", "auto"}), "");
  EXPECT_THAT(refusal({"--server-device", "gpu"}), StartsWith("[device] --server-device gpu"));
  EXPECT_THAT(refusal({"--server-device", "cuda:0,cuda:1"}), HasSubstr("a server uses one device"));
  EXPECT_THAT(refusal({"--strategies", "sync,psync"}),
              AllOf(StartsWith("[compare] --strategies"), HasSubstr("psync"), HasSubstr("async")));
  EXPECT_THAT(refusal({"--strategies", "local:0"}), HasSubstr("local:0"));
  EXPECT_THAT(refusal({"--strategies", "sync,"}), HasSubstr("''"));
  EXPECT_THAT(refusal({"--strategies", "sync,async,sync"}), HasSubstr("twice"));
  EXPECT_THAT(refusal({"--strategies", "sync,ssp:0"}), HasSubstr("another name of sync"));
  EXPECT_THAT(refusal({"--strategies", "backup:9", "--workers", "2"}),
              AllOf(HasSubstr("backup:9"), HasSubstr("--workers has 2"), HasSubstr("10")));
  EXPECT_THAT(refusal({"--strategies", "backup:1", "--workers", "2,1"}), HasSubstr("has 1"));
  EXPECT_EQ(refusal({"--strategies", "backup:1", "--workers", "2,3"}), "");
  EXPECT_THAT(refusal({"--seeds", "0"}), AllOf(HasSubstr("--seeds"), HasSubstr("'0'")));
  EXPECT_THAT(refusal({"--workers", "0"}), AllOf(HasSubstr("--workers"), HasSubstr("'0'")));
  EXPECT_THAT(refusal({"--workers", "1,two"}), HasSubstr("'two'"));
  EXPECT_THAT(refusal({"--workers", "1,2,1"}), HasSubstr("1 is given twice"));
  EXPECT_THAT(refusal({"--workers", "1,99999"}), HasSubstr("'99999'"));
  EXPECT_THAT(refusal({"--target-accuracy", "97"}), AllOf(HasSubstr("'97'"), HasSubstr("<= 1")));
  EXPECT_THAT(refusal({"--target-accuracy", "0"}), HasSubstr("> 0"));
  EXPECT_THAT(refusal({"--target-accuracy", "nan"}), HasSubstr("nan"));
  EXPECT_THAT(refusal({"--straggler", "1:4", "--workers", "2,1"}),
              AllOf(HasSubstr("--straggler 1:4"), HasSubstr("no worker 1"), HasSubstr("below 1")));
  EXPECT_THAT(refusal({"--straggler", "fast"}), AllOf(HasSubstr("straggler"), HasSubstr("fast")));
  EXPECT_THAT(refusal({"job.ini"}), HasSubstr("'job.ini' is not a flag"));
  EXPECT_THAT(refusal({"--strategy", "sync"}), HasSubstr("--strategies"));
  EXPECT_THAT(refusal({"--checkpoint-dir", "x"}), HasSubstr("--keep-checkpoints"));
  EXPECT_THAT(refusal({"--lr", "fast"}), HasSubstr("lr"));
  EXPECT_THAT(refusal({"--seed", "18446744073709551615"}), HasSubstr("smaller"));
}

TEST(CompareOptions, ReadsTuneAsOftenAsItIsGiven) {
  const CompareOptions options =
      parse({"--steps=10", "--tune", "lr=0.5,1", "--tune=momentum=0,0.9,0.95"});
  ASSERT_EQ(options.tune.size(), 2U);
  EXPECT_EQ(options.tune[0].key, "lr");
  EXPECT_THAT(options.tune[0].values, ElementsAre("0.5", "1"));
  EXPECT_EQ(options.tune[1].key, "momentum");
  EXPECT_THAT(options.tune[1].values, ElementsAre("0", "0.9", "0.95"));
}

TEST(CompareOptions, ReadsLinksAsOftenAsTheyAreGiven) {
  EXPECT_THAT(parse({"--steps=10"}).links, ElementsAre(""));
  EXPECT_THAT(parse({"--steps=10", "--link", "none", "--link=100mbit,5ms"}).links,
              ElementsAre("", "100mbit,5ms"));
  EXPECT_THAT(refusal({"--link", "1gbit,1ms", "--link", "1gbit,1ms"}), HasSubstr("twice"));
  EXPECT_THAT(refusal({"--link="}), HasSubstr("RATE,DELAY"));
  EXPECT_THAT(refusal({"--link"}), HasSubstr("link"));
}

TEST(CompareOptions, ReadsCodecsAndNamesTheWrongOne) {
  EXPECT_THAT(parse({"--steps=10"}).codecs, ElementsAre(""));
  EXPECT_THAT(parse({"--steps=10", "--codecs", "fp32,int8,topk:0.050"}).codecs,
              ElementsAre("fp32", "int8", "topk:0.05"));
  EXPECT_THAT(refusal({"--codecs", "fp32,int4"}), HasSubstr("int4"));
  EXPECT_THAT(refusal({"--codecs", "int8,topk:0.5,int8"}), HasSubstr("int8 is given twice"));
  EXPECT_THAT(refusal({"--codecs", "int8", "--codec", "bf16"}), HasSubstr("--codec"));
}

TEST(CompareOptions, ACodecDoesNotKeepAllReduceFromRunning) {
  EXPECT_THAT(parse({"--steps=10", "--strategies", "sync,allreduce:tree", "--codec", "int8",
                     "--codec-tensors", "*.bias=fp32", "--pull-codec", "bf16"})
                  .strategies,
              ElementsAre("sync", "allreduce:tree"));
}

TEST(CompareOptions, RefusesTriesThatCannotRunOrWouldNotBeEqual) {
  EXPECT_THAT(refusal({"--tune", "lr"}), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(refusal({"--tune", "--out", "x"}), HasSubstr("tune"));
  EXPECT_THAT(refusal({"--tune", "lr=0.5,fast"}), HasSubstr("'fast'"));
  EXPECT_THAT(refusal({"--tune", "lr="}), HasSubstr("''"));
  EXPECT_THAT(refusal({"--tune="}), HasSubstr("''"));
  EXPECT_THAT(refusal({"--tune", "lr=0.5,0.50"}), HasSubstr("twice"));
  EXPECT_THAT(refusal({"--tune", "lr=1", "--tune", "lr=2"}), HasSubstr("lr is given twice"));
  EXPECT_THAT(refusal({"--tune", "lr=0.5,-1"}), AllOf(HasSubstr("lr=-1"), HasSubstr("> 0")));
  EXPECT_THAT(refusal({"--tune", "mometum=0.5"}), HasSubstr("did you mean momentum"));
  EXPECT_THAT(refusal({"--tune", "model=1"}), HasSubstr("'model'"));
  EXPECT_THAT(refusal({"--tune", "steps=1,2"}), HasSubstr("'steps'"));
  EXPECT_EQ(refusal({"--tune", "outer-lr=0.5,1", "--strategies", "local:4"}), "");
}

TEST(CompareOptions, RunsStrategiesSideBySideThatOneJobFileCouldNotHold) {
  const ScratchFolder folder;
  const std::string job = folder / "job.ini";
  write_bytes(job,
              "steps = 10\nstrategy = async\nstaleness-aware = true\nrecord = r\n"
              "on-worker-loss = continue\nresume = true\ncheckpoint-every = 5\n");
  const CompareOptions options =
      parse({"--job", job.c_str(), "--strategies", "sync,async,allreduce:tree"});
  EXPECT_FALSE(options.job.staleness_aware) << "sync has none";
  EXPECT_EQ(options.job.record, "");
  EXPECT_EQ(options.job.resume, Resume::kFalse);
  EXPECT_EQ(options.job.checkpoint_every, 0);
}

TEST(CompareOptions, OptionsForSinglePushesAreOffWherePushesAreGathered) {
  const auto keys = keys_of_strategy("buffered:4");
  EXPECT_EQ(keys.at("strategy"), "buffered:4");
  EXPECT_EQ(keys.at("staleness-aware"), "false");
  EXPECT_EQ(keys.at("delay-compensation"), "0");
  EXPECT_FALSE(keys_of_strategy("async").contains("staleness-aware"));
}

TEST(CompareOptions, TheSharedJobHasOnlyLinesThatAllRunsHave) {
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
