// Tests the range of every key, and numbers as text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "common/base/text.h"
#include "common/job/job.h"
#include "common/job/job_keys.h"
#include "tests/common/job_test_support.h"

namespace pushpull::job_values_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Range {
  std::string key;
  std::vector<std::string> good;
  std::vector<std::string> bad;
};

std::vector<Range> ranges_of_training() {
  return {
      {"model",
       {"mlp", "convnet", "gpt", "bert", "resnet18", "resnet50", "external"},
       {"resnext", "MLP", ""}},
      {"hidden", {"", "none", "1", "64,32", "64, 32"}, {"0", "64,", ",", "64;32", "1000001", "-1"}},
      {"layers", {"1", "12", "1000"}, {"0", "1001", "-1", ""}},
      {"heads", {"1", "1024"}, {"0", "1025"}},
      {"embed", {"1", "65536"}, {"0", "65537"}},
      {"ffn", {"0", "262144"}, {"-1", "262145"}},
      {"dropout", {"0", "0.1", "0.999"}, {"1", "-0.1", "x"}},
      {"attention-dropout", {"0", "0.1"}, {"1", "-0.1", ""}},
      {"tie-embeddings", {"true", "false"}, {"yes", ""}},
      {"norm", {"layer", "rms"}, {"batch", ""}},
      {"positions", {"0", "512", "1000000"}, {"-1", "1000001", ""}},
      {"head-weights",
       {"", "start:1", "start:1,end-position:0.25", " class : 0 "},
       {"start", "start:", ":1", "start:-1", "start:1,", "start:1,start:2", "st art:1", "a:1e7"}},
      {"label-smoothing", {"0", "0.1", "0.999"}, {"1", "-0.1", ""}},
      {"stem", {"cifar", "imagenet"}, {"cifar10", ""}},
      {"stages", {"1", "2", "1000"}, {"0", "1001", "two", ""}},
      {"schedule", {"1f1b", "gpipe"}, {"1F1B", ""}},
      {"balance", {"auto", "parameters", "1", "3,2"}, {"", "fast", "0", "1,", "3;2"}},
      {"init-from-missing", {"refuse", "allow"}, {"draw", ""}},
      {"numerics", {"same", "any"}, {"other", ""}},
      {"init-from", {"", "a/b.safetensors"}, {"a#b", " a", "a\nb", std::string(5000, 'a')}},
      {"seed", {"0", "18446744073709551615"}, {"-1", "18446744073709551616", "1.0", ""}},
      {"dataset", {"dummy", "dummy-qa", "digits"}, {"imagenot", ""}},
      {"data-dir", {"", "/mnt/m\xc3\xbcller", "a b"}, {"\xff", "a\x01", "b ", "#"}},
      {"train-samples", {"0", "64", "1000000000000"}, {"-1", "1000000000001", "x"}},
      {"test-samples", {"0", "1"}, {"-1", ""}},
      {"shuffle", {"true", "false"}, {"yes", "1", "True", ""}},
      {"sampler", {"uniform", "weighted"}, {"balanced", ""}},
      {"input",
       {"1", "784", "1x28x28", "784x1x1"},
       {"0", "28x28", "1x28x28x1", "x", "100001", "100000x100000x1", "1X28X28", ""}},
      {"classes", {"2", "1000000"}, {"1", "1000001"}},
      {"tokenizer", {"char", "bpe"}, {"word", "BPE", ""}},
      {"tokenizer-file", {"", "gpt2/tokenizer.json"}, {"a#b", " a"}},
      {"sequence", {"1", "64", "32768"}, {"0", "32769", "-1", ""}},
      {"vocab", {"0", "257", "1000000"}, {"-1", "1000001"}},
      {"epochs", {"1", "1000000"}, {"-1", "1000001", "0.5"}},
      {"steps", {"0", "1"}, {"-1", "1e6"}},
      {"stop-after", {"0", "9"}, {"-1"}},
      {"global-batch", {"8", "64"}, {"0", "-8", "1000000001", "9223372036854775808"}},
      {"micro-batch", {"1", "64"}, {"0", "-1", "1000000001"}},
      {"threads", {"1", "1024"}, {"0", "1025"}},
      {"precision", {"fp32", "tf32", "bf16", "fp16"}, {"fp64", "BF16", ""}},
      {"loss-scale", {"1", "1024", "16777216"}, {"0", "3", "-2", "33554432", "0.5", ""}},
      {"algorithms", {"library", "timed"}, {"fastest", "Timed", "true", ""}},
      {"optimizer",
       {"sgd", "momentum", "nesterov", "adam", "adamw", "rmsprop", "adagrad", "lion", "lamb"},
       {"lars", "Adam", ""}},
      {"lr", {"0.1", "1e-300", "5"}, {"0", "-1", "fast", "inf", "nan", "1e999", "0.1x", " 1", ""}},
      {"momentum", {"0", "0.999"}, {"1", "-0.1"}},
      {"beta1", {"0", "0.5"}, {"1", "-0.1"}},
      {"beta2", {"0", "0.5"}, {"1", "-0.1"}},
      {"epsilon", {"1e-8", "1"}, {"0", "-1"}},
      {"weight-decay", {"0", "0.1"}, {"-0.1", "inf"}},
      {"no-decay",
       {"model", "none", "", "*.bias", "*.bias, *norm*,fc.weight"},
       {",", "*.bias,", "a b", "*.bias=0", "#"}},
      {"ema", {"0", "0.999"}, {"1", "-0.1", "nan"}},
      {"lr-schedule",
       {"constant", "cosine", "linear", "onecycle", "inverse-sqrt"},
       {"exponential", ""}},
      {"lr-milestones", {"none", "", "5", "5, 6,1000000000000"}, {"0", "6,5", "5,5", "5,", "x"}},
      {"lr-points",
       {"none", "", "0:0.1", "0:0, 5:1e-3,7:0"},
       {"0", ":0.1", "0:", "-1:0.1", "5:0.1,5:0.2", "0:-1", "0:0.1,", "0:nan"}},
      {"lr-horizon", {"0", "5"}, {"-1"}},
      {"warmup-from", {"0", "0.05"}, {"-1", "nan"}},
      {"warmup-shape", {"linear"}, {"log", "DeepSpeed", ""}},
      {"lr-step", {"0", "5"}, {"-1"}},
      {"lr-gamma", {"0.1", "1"}, {"0", "1.1"}},
      {"lr-min", {"0", "0.1"}, {"-1"}},
      {"warmup-steps", {"0", "5"}, {"-1"}},
      {"warmup-fraction", {"0", "0.1", "0.99"}, {"-0.1", "1", "nan"}},
      {"clip-norm", {"0", "1.5"}, {"-1", "nan"}},
  };
}

std::vector<Range> ranges_of_running() {
  return {
      {"strategy",
       {"sync", "async", "buffered:1", "buffered:1000000", "ssp:0", "ssp:1000000", "backup:0",
        "backup:2", "local:1", "local:500", "allreduce:tree", "allreduce:ring", "allreduce:gloo"},
       {"buffered", "buffered:", "buffered:0", "buffered:-1", "buffered:1000001", "ssp:x", "ssp",
        "ssp:", "ssp:-1", "ssp:1000001", "backup", "backup:-1", "local:0", "local:", "allreduce",
        "allreduce:star", ""}},
      {"outer-lr", {"0.7", "1"}, {"0", "-1", "nan"}},
      {"outer-momentum", {"0", "0.9"}, {"1", "-0.1"}},
      {"staleness-aware", {"true", "false"}, {"yes", ""}},
      {"delay-compensation", {"0", "0.04"}, {"-1", "inf"}},
      {"straggler",
       {"none", "0:1", "3:2.5", "0:1000"},
       {"0", "0:", ":4", "-1:4", "0:0.5", "0:1001", "a:4", ""}},
      {"record", {"", "a/run.rec"}, {"a#b", " a"}},
      {"slice-bytes", {"256", "1073741824"}, {"255", "1073741825"}},
      {"transport", {"auto", "shm", "ipc", "tcp"}, {"udp", ""}},
      {"wait", {"auto", "spin", "sleep"}, {"poll", ""}},
      {"encrypt", {"control", "all"}, {"data", "none", ""}},
      {"connections", {"1", "16"}, {"0", "17"}},
      {"server-threads", {"0", "256"}, {"-1", "257"}},
      {"codec",
       {"fp32", "fp16", "bf16", "int8", "topk:0.05", "topk:1"},
       {"topk", "topk:0", "topk:1.1", "fp8", ""}},
      {"codec-tensors",
       {"", "fc.*=int8", "a.weight=topk:0.1,*.bias=fp32"},
       {"int8", "=int8", "a b=int8", "fc=fp8", "fc=int8,"}},
      {"pull-codec", {"fp32", "bf16"}, {"int8", ""}},
      {"on-worker-loss", {"abort", "wait", "continue"}, {"ignore", ""}},
      {"on-server-loss", {"restart", "abort"}, {"wait", ""}},
      {"recovery", {"checkpoint", "peers"}, {"replica", ""}},
      {"copy-every", {"1", "16"}, {"0", "-1"}},
      {"on-bad-gradient", {"abort", "skip"}, {"zero", ""}},
      {"eval-every", {"0", "5"}, {"-1"}},
      {"eval-weights", {"model"}, {"average", ""}},
      {"stop-when",
       {"none", "", "loss:1", "start/exact-match:3", "metric:1000000", "f_1/value:2", "WER/cost:2"},
       {"loss", "loss:0", "loss:1000001", "f1:2", "/loss:2", "a./loss:2", "a/b/loss:2", "loss:"}},
      {"checkpoint-best", {"false", "true"}, {"yes", ""}},
      {"checkpoint-dir", {"", "out"}, {"a#"}},
      {"checkpoint-every", {"0", "5", "auto"}, {"-1", "often", ""}},
      {"checkpoint-keep", {"1", "5"}, {"0", "-1"}},
      {"keep-runs", {"0", "1000"}, {"-1", "1001"}},
      {"on-checkpoint-failure", {"abort", "continue"}, {"wait", ""}},
      {"resume", {"false", "true", "auto"}, {"no", ""}},
      {"heartbeat-timeout", {"0.1", "1000000"}, {"0", "0.05", "1000001"}},
      {"min-workers", {"1", "8"}, {"0", "-1", "1000001"}},
      {"max-workers", {"0", "1", "1000000"}, {"-1", "1000001"}},
      {"replacement-timeout", {"0.1", "60"}, {"0", "-5", "1e7"}},
      {"progress-timeout", {"0", "0.1", "1000000"}, {"0.05", "-1", "1000001"}},
      {"task-timeout", {"0", "0.1", "1000000"}, {"0.05", "-1", "1000001"}},
  };
}

const std::vector<Range>& ranges() {
  static const std::vector<Range> all = [] {
    std::vector<Range> out = ranges_of_training();
    const std::vector<Range> running = ranges_of_running();
    out.insert(out.end(), running.begin(), running.end());
    return out;
  }();
  return all;
}

// Returns the value, with the other keys that it needs for a valid job.
std::map<std::string, std::string> job_with(const std::string& key, const std::string& value) {
  std::map<std::string, std::string> flags = {{key, value}};
  if (key == "stop-after") flags["steps"] = "9";
  if (key == "stop-when") flags["eval-every"] = "5";
  const bool stale = key == "staleness-aware" || key == "delay-compensation" || key == "record";
  if (stale) flags["strategy"] = "async";
  return flags;
}

TEST(JobValues, EveryKeyHasARangeHere) {
  std::vector<std::string> expected;
  for (const KeyHelp& help : job_keys()) expected.push_back(help.key);
  std::vector<std::string> tested;
  for (const Range& range : ranges()) tested.push_back(range.key);
  EXPECT_THAT(tested, ::testing::UnorderedElementsAreArray(expected));
}

TEST(JobValues, GoodValuesAreAcceptedAndReadBack) {
  for (const Range& range : ranges()) {
    for (const std::string& value : range.good) {
      SCOPED_TRACE(range.key + " = " + value);
      const Job job = parse_job("", job_with(range.key, value));
      EXPECT_EQ(parse_job_text(to_ini(job), "coordinator"), job);
    }
  }
}

TEST(JobValues, BadValuesAreRefusedByNameAndSource) {
  for (const Range& range : ranges()) {
    for (const std::string& value : range.bad) {
      SCOPED_TRACE(range.key + " = " + value);
      const std::string text = usage_error([&] { parse_job("", job_with(range.key, value)); });
      EXPECT_THAT(text, HasSubstr("[job] " + range.key + " = "));
      EXPECT_THAT(text, HasSubstr(" (--" + range.key + "): must be "));
    }
  }
}

// The losses of a round are one message, so their number is limited.
TEST(JobValues, TheLossesOfARoundOfLocalStepsAreLimited) {
  const auto parse = [](const std::string& h) {
    return parse_job_text("global-batch = 64\nmicro-batch = 8\nstrategy = local:" + h, "test");
  };
  EXPECT_EQ(parse("250000").strategy.local_steps, 250'000);
  EXPECT_THAT(usage_error([&] { parse("250001"); }),
              AllOf(HasSubstr("local:250001"), HasSubstr("8 micro-batches")));
}

TEST(StrictNumber, ParsesTheWholeTextOrNothing) {
  EXPECT_EQ(parse_int64("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "0x10", "1.0", "9223372036854775808"}) {
    EXPECT_EQ(parse_int64(text), std::nullopt) << text;
  }
  EXPECT_EQ(parse_uint64("-1"), std::nullopt);
  EXPECT_EQ(parse_real("-2.5e-3"), -0.0025);
  for (const char* text : {"", "inf", "-inf", "nan", "1e999", "1e", "0x1p3", "1,5", "+1", "1 "}) {
    EXPECT_EQ(parse_real(text), std::nullopt) << text;
  }
}

TEST(StrictNumber, PrintsTheShortestTextThatParsesBack) {
  EXPECT_EQ(print_real(0.1), "0.1");
  EXPECT_EQ(print_real(60.0), "60");
  for (const double value : {1.0 / 3.0, 5e-324, std::numeric_limits<double>::max(), -1e-8}) {
    EXPECT_EQ(parse_real(print_real(value)), value);
  }
}

}  // namespace
}  // namespace pushpull::job_values_test
