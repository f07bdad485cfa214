// Tests sources, precedence, combinations, data and resume; job_values_test.cpp tests single values.
#include "common/job/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "common/job/barriers.h"
#include "common/job/job_keys.h"
#include "common/job/job_settings.h"
#include "tests/common/job_test_support.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Flags = std::map<std::string, std::string>;

Job parse(const Flags& flags) { return parse_job("", flags); }

std::string error_of(const Flags& flags) {
  return usage_error([&] { parse_job("", flags); });
}

std::string error_of_text(const std::string& ini) {
  return usage_error([&] { parse_job_text(ini, "job.ini"); });
}

TEST(Job, WithoutSettingsIsOneEpochOfTheDefaults) {
  Job expected;
  expected.epochs = 1;
  EXPECT_EQ(parse({}), expected);
  EXPECT_EQ(parse_job_text("", "empty"), expected);
}

TEST(Job, ARecordCannotHoldResidualsOfCodecs) {
  const Flags recorded = {{"strategy", "async"}, {"record", "run.rec"}};
  const auto with = [&](const std::string& key, const std::string& value) {
    Flags flags = recorded;
    flags[key] = value;
    return flags;
  };
  EXPECT_THAT(error_of(with("codec", "int8")),
              AllOf(HasSubstr("record"), HasSubstr("codec = int8")));
  EXPECT_THAT(error_of(with("codec-tensors", "*=fp16")), HasSubstr("codec-tensors"));
  EXPECT_EQ(parse(with("pull-codec", "bf16")).pull_codec.kind, CodecKind::kBf16);
}

TEST(Job, ARecordNeedsAModelThatReplayCanCompute) {
  const Flags recorded = {{"strategy", "async"}, {"record", "run.rec"}, {"model", "external"}};
  EXPECT_THAT(error_of(recorded), AllOf(HasSubstr("record = run.rec (--record)"),
                                        HasSubstr("model = external (--model)")));
}

TEST(Job, ReadsEveryKindOfValue) {
  const Job job = parse_job_text(
      "# a comment\n"
      "model = convnet   # another\n"
      "\n"
      "hidden = 64, 32\r\n"
      "input=3x32x16\n"
      "steps = 40\n"
      "lr = 2.5e-3\n"
      "optimizer = adamw\n"
      "lr-schedule = cosine\n"
      "strategy = ssp:3\n"
      "shuffle = false\n"
      "resume = auto\n"
      "seed = 18446744073709551615\n"
      "data-dir = /a folder/with = signs\n",
      "job.ini");
  EXPECT_EQ(job.model, "convnet");
  EXPECT_THAT(job.hidden, ElementsAre(64, 32));
  EXPECT_EQ(job.input, (InputShape{3, 32, 16}));
  EXPECT_EQ(job.steps, 40);
  EXPECT_EQ(job.epochs, 0);
  EXPECT_EQ(job.schedule.lr, 0.0025);
  EXPECT_EQ(job.optimizer.kind, OptimizerKind::kAdamW);
  EXPECT_EQ(job.schedule.kind, ScheduleKind::kCosine);
  EXPECT_EQ(job.strategy, (Strategy{.kind = StrategyKind::kSsp, .staleness = 3}));
  EXPECT_FALSE(job.shuffle);
  EXPECT_EQ(job.resume, Resume::kAuto);
  EXPECT_EQ(job.seed, UINT64_MAX);
  EXPECT_EQ(job.data_dir, "/a folder/with = signs");
}

TEST(Job, FlagsOverrideTheEnvironmentAndTheEnvironmentTheFile) {
  const ScopedFile file("lr = 1\nseed = 1\nglobal-batch = 8\n");
  const ScopedVariable lr("PUSHPULL_LR", "2");
  const ScopedVariable batch("PUSHPULL_GLOBAL_BATCH", "16");
  const Job job = parse_job(file.path(), {{"lr", "3"}});
  EXPECT_EQ(job.seed, 1U);
  EXPECT_EQ(job.global_batch, 16);
  EXPECT_EQ(job.schedule.lr, 3.0);
}

TEST(Job, ALaterLengthReplacesTheOtherOneOfAnEarlierPlace) {
  {
    const ScopedFile file("epochs = 3\n");
    const Job steps = parse_job(file.path(), {{"steps", "7"}});
    EXPECT_EQ(steps.steps, 7);
    EXPECT_EQ(steps.epochs, 0);
    EXPECT_EQ(parse_job(file.path(), {{"steps", "0"}}).epochs, 3);
  }
  const ScopedFile file("steps = 7\n");
  EXPECT_EQ(parse_job(file.path(), {{"epochs", "2"}}).steps, 0);
}

TEST(Job, TextFromTheCoordinatorIgnoresTheEnvironment) {
  const ScopedVariable lr("PUSHPULL_LR", "2");
  EXPECT_EQ(parse_job_text("", "coordinator").schedule.lr, 0.1);
}

TEST(Job, OfAWorkersProgramIsExternalAndFlagsComeFirst) {
  const Job job = parse_programs_job("lr = 0.5\nepochs = 3\n", {{"steps", "7"}});
  EXPECT_EQ(job.model, "external");
  EXPECT_EQ(job.schedule.lr, 0.5);
  EXPECT_EQ(job.steps, 7);
  EXPECT_EQ(job.epochs, 0);
  EXPECT_EQ(parse_programs_job("model = mlp\n", {}).model, "mlp");
}

TEST(Job, KeysOfAWorkersProgramMustHaveTheJobsValues) {
  const Job job = parse_job("", {{"lr", "0.001"}, {"steps", "7"}, {"optimizer", "adamw"}});
  const auto error = [&](const std::string& ini) {
    try {
      check_programs_keys(ini, job);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUsage);
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(error(""), "");
  EXPECT_EQ(error("lr = 1e-3\noptimizer = adamw\nsteps = 7\n"), "");
  EXPECT_THAT(error("lr = 0.01"), AllOf(StartsWith("[job] lr = 0.01 "), HasSubstr("0.001")));
  EXPECT_THAT(error("epochs = 2"), StartsWith("[job] epochs = 2 "));
  EXPECT_THAT(error("lr = fast"), StartsWith("[job] lr = fast (the worker's program): "));
  EXPECT_THAT(error("pace = 1"), HasSubstr("'pace'"));
}

TEST(Job, ErrorsNameKeyValueAndSource) {
  EXPECT_THAT(error_of({{"lr", "-1"}}), StartsWith("[job] lr = -1 (--lr): "));
  EXPECT_THAT(error_of_text("\nlr = fast"), StartsWith("[job] lr = fast (job.ini:2): "));
  const ScopedVariable lr("PUSHPULL_LR", "0");
  EXPECT_THAT(error_of({}), StartsWith("[job] lr = 0 (PUSHPULL_LR): "));
}

TEST(Job, ErrorsEscapeUnprintableBytes) {
  EXPECT_THAT(error_of({{"model", "a\nb\x1b\xff"}}),
              StartsWith("[job] model = a\\x0ab\\x1b\\xff (--model)"));
  EXPECT_LT(error_of({{"model", std::string(100'000, 'm')}}).size(), 200U);
}

TEST(Job, UnknownNamesAreRefusedWithTheirPlaceAndTheNearestName) {
  EXPECT_THAT(error_of_text("seed = 1\nlearning-rate = 1\n"),
              AllOf(HasSubstr("'learning-rate' (job.ini:2)"), EndsWith(" lr?")));
  EXPECT_THAT(error_of_text("global_batch = 1"),
              AllOf(HasSubstr("'global_batch' (job.ini:1)"), EndsWith(" global-batch?")));
  EXPECT_THAT(error_of_text("zebra-crossing = 1"), EndsWith("'zebra-crossing' (job.ini:1)"));
  EXPECT_THAT(error_of({{"optimi", "sgd"}}),
              AllOf(HasSubstr("--optimi;"), EndsWith("--optimizer?")));
  const ScopedVariable near("PUSHPULL_GLOBALBATCH", "1");
  EXPECT_THAT(error_of({}),
              AllOf(HasSubstr("PUSHPULL_GLOBALBATCH "), EndsWith("PUSHPULL_GLOBAL_BATCH?")));
}

TEST(Job, VariablesOfProgramsAndTestsAreNoKeys) {
  const ScopedVariable share("PUSHPULL_SHARE", "x");
  const ScopedVariable libraries("PUSHPULL_CUDA_LIBS", "/opt/lib");
  const ScopedVariable test("PUSHPULL_TEST_ANYTHING", "1");
  const ScopedVariable join("PUSHPULL_JOIN", "tcp://127.0.0.1:1");
  const ScopedVariable insecure("PUSHPULL_INSECURE", "1");
  const ScopedVariable rank("PUSHPULL_RANK", "1");
  const ScopedVariable size("PUSHPULL_WORLD_SIZE", "2");
  const ScopedVariable local_rank("PUSHPULL_LOCAL_RANK", "1");
  const ScopedVariable port("PUSHPULL_PORT", "5555");
  EXPECT_NO_THROW(parse({}));
}

TEST(Job, VariablesOfKubernetesServicesAreNoKeys) {
  // as the kubelet sets them for the Services pushpull and pushpull-web
  const ScopedVariable host("PUSHPULL_SERVICE_HOST", "10.96.0.7");
  const ScopedVariable port("PUSHPULL_SERVICE_PORT", "5555");
  const ScopedVariable named("PUSHPULL_SERVICE_PORT_CONTROL", "5555");
  const ScopedVariable link("PUSHPULL_PORT", "tcp://10.96.0.7:5555");
  const ScopedVariable tcp("PUSHPULL_PORT_5555_TCP", "tcp://10.96.0.7:5555");
  const ScopedVariable proto("PUSHPULL_PORT_5555_TCP_PROTO", "tcp");
  const ScopedVariable number("PUSHPULL_PORT_5555_UDP_PORT", "5555");
  const ScopedVariable address("PUSHPULL_PORT_5555_TCP_ADDR", "10.96.0.7");
  const ScopedVariable web_host("PUSHPULL_WEB_SERVICE_HOST", "10.96.0.8");
  const ScopedVariable web_link("PUSHPULL_WEB_PORT", "tcp://10.96.0.8:80");
  EXPECT_NO_THROW(parse({}));
  const ScopedVariable other("PUSHPULL_WEB_PORT", "80");
  EXPECT_THAT(error_of({}), HasSubstr("unknown variable PUSHPULL_WEB_PORT"));
}

TEST(Job, VariablesOfModulefilesAreNoKeys) {
  const ScopedVariable home("PUSHPULL_HOME", "/opt/pushpull");
  const ScopedVariable root("PUSHPULL_ROOT", "/opt/pushpull");
  const ScopedVariable dir("PUSHPULL_DIR", "/opt/pushpull");
  const ScopedVariable version("PUSHPULL_VERSION", "1.0");
  EXPECT_NO_THROW(parse({}));
}

TEST(Job, FileMustExistAndBeAJobFile) {
  const std::string deep = "/no/" + std::string(200, 'd') + "/nowhere.ini";
  for (const std::string& path : {deep, ::testing::TempDir(), std::string("/dev/zero")}) {
    EXPECT_THAT(usage_error([&] { parse_job(path, {}); }), HasSubstr(path));
  }
  const ScopedFile file("lr = 1\nlr = 2\n");
  EXPECT_THAT(
      usage_error([&] { parse_job(file.path(), {}); }),
      AllOf(StartsWith("[job] lr "), HasSubstr(file.path() + ":1"), HasSubstr(file.path() + ":2")));
  EXPECT_THAT(error_of_text("seed 1"), HasSubstr("job.ini:1: 'seed 1'"));
  EXPECT_THAT(error_of_text("[model]\nlr = 1"), HasSubstr("job.ini:1: '[model]'"));
  EXPECT_THAT(error_of_text("= 1"), HasSubstr("''"));
}

TEST(Job, AFileMayBeginWithAByteOrderMark) {
  const ScopedFile utf8("\xEF\xBB\xBFlr = 2\nseed = 3\n");
  EXPECT_EQ(parse_job(utf8.path(), {}).schedule.lr, 2.0);
  const ScopedFile utf16(
      std::string("\xFF\xFEl\0r\0=\0"
                  "2\0\n\0",
                  12));
  EXPECT_THAT(usage_error([&] { parse_job(utf16.path(), {}); }),
              HasSubstr(" is UTF-16: save it as UTF-8"));
  const ScopedFile big_endian(
      std::string("\xFE\xFF\0l\0r\0=\0"
                  "2",
                  10));
  EXPECT_THAT(usage_error([&] { parse_job(big_endian.path(), {}); }), HasSubstr(" is UTF-16"));
}

TEST(Job, ConsistentKeysAreAccepted) {
  EXPECT_EQ(parse({{"epochs", "3"}}).epochs, 3);
  EXPECT_EQ(parse({{"steps", "3"}}).epochs, 0);
  EXPECT_EQ(parse({{"steps", "0"}}).epochs, 1);
  EXPECT_EQ(parse({{"epochs", "0"}, {"steps", "5"}}).steps, 5);
  EXPECT_EQ(parse({{"steps", "10"}, {"stop-after", "10"}}).stop_after, 10);
  EXPECT_EQ(parse({{"global-batch", "65"}, {"micro-batch", "13"}}).micro_batches(), 5);
  EXPECT_EQ(parse({{"global-batch", "65536"}, {"micro-batch", "1"}}).micro_batches(), 65536);
  EXPECT_EQ(parse({{"global-batch", "4096"}, {"train-samples", "4096"}}).global_batch, 4096);
  EXPECT_EQ(parse({{"lr-schedule", "step"}, {"lr-step", "5"}}).schedule.step, 5);
  EXPECT_EQ(parse({{"dataset", "idx"}, {"data-dir", "mnist"}}).data_dir, "mnist");
  EXPECT_EQ(parse({{"model", "external"}, {"stages", "2"}, {"strategy", "local:4"}}).stages, 2);
  EXPECT_EQ(parse({{"optimizer", "lamb"}, {"stages", "2"}}).stages, 2);
  for (const std::string strategy : {"backup:1", "local:4", "allreduce:ring"}) {
    EXPECT_EQ(parse({{"optimizer", "lamb"}, {"strategy", strategy}}).optimizer.kind,
              OptimizerKind::kLamb);
  }
}

struct Contradiction {
  Flags flags;
  std::vector<std::string> named;  // keys with their values, and suggested values
};

TEST(Job, ContradictingKeysAreRefusedAndNamed) {
  for (const auto& [flags, named] : std::vector<Contradiction>{
           {{{"epochs", "3"}, {"steps", "4"}}, {"epochs = 3 (--epochs)", "steps = 4 (--steps)"}},
           {{{"epochs", "0"}}, {"epochs", "steps"}},
           {{{"steps", "10"}, {"stop-after", "11"}}, {"stop-after = 11", "steps = 10"}},
           {{{"global-batch", "65"}},
            {"global-batch = 65 (--global-batch)", "micro-batch = 8 (default)",
             "global-batch 64 or 72", "micro-batch 5 or 13"}},
           {{{"global-batch", "4"}}, {"global-batch = 4", "global-batch 8", "micro-batch 4"}},
           // 65537 is a prime; the search for divisors of a large prime must not count up to it
           {{{"global-batch", "65537"}, {"micro-batch", "1"}},
            {"global-batch = 65537", "micro-batch = 1 ", "micro-batch 65537"}},
           {{{"global-batch", "1000000000"}, {"micro-batch", "7"}}, {"micro-batch 15625"}},
           {{{"global-batch", "999999937"}, {"micro-batch", "500000000"}},
            {"micro-batch 999999937"}},
           {{{"global-batch", "4096"}, {"train-samples", "1000"}},
            {"global-batch = 4096", "train-samples = 1000"}},
           {{{"lr-schedule", "step"}}, {"lr-schedule", "lr-step"}},
           {{{"lr-schedule", "multistep"}}, {"lr-schedule", "lr-milestones"}},
           {{{"lr-schedule", "points"}}, {"lr-schedule", "lr-points"}},
           {{{"lr-schedule", "points"}, {"lr-points", "0:1"}, {"warmup-steps", "5"}},
            {"lr-schedule", "warmup-steps"}},
           {{{"lr-schedule", "external"}}, {"lr-schedule = external", "model = mlp"}},
           {{{"lr-schedule", "external"}, {"model", "external"}, {"warmup-fraction", "0.1"}},
            {"lr-schedule", "warmup-fraction"}},
           {{{"lr-schedule", "external"}, {"model", "external"}, {"strategy", "allreduce:tree"}},
            {"lr-schedule", "strategy = allreduce:tree"}},
           {{{"lr-schedule", "external"}, {"model", "external"}, {"stages", "2"}},
            {"lr-schedule", "stages = 2"}},
           {{{"warmup-from", "0.2"}}, {"warmup-from = 0.2", "lr = 0.1"}},
           {{{"warmup-shape", "deepspeed-log"}}, {"warmup-shape", "warmup-steps"}},
           {{{"warmup-shape", "deepspeed-log"}, {"warmup-steps", "5"}, {"lr-schedule", "onecycle"}},
            {"warmup-shape", "constant, linear or cosine"}},
           {{{"lr-schedule", "onecycle"}, {"lr-min", "0.2"}}, {"lr-min = 0.2", "lr = 0.1"}},
           {{{"lr-schedule", "cosine"}, {"lr", "0.1"}, {"lr-min", "0.2"}},
            {"lr-min = 0.2", "lr = 0.1"}},
           {{{"lr-schedule", "linear"}, {"lr-min", "0.2"}}, {"lr-min = 0.2", "lr = 0.1 (default)"}},
           {{{"warmup-steps", "5"}, {"warmup-fraction", "0.1"}},
            {"warmup-steps = 5 (--warmup-steps)", "warmup-fraction = 0.1 (--warmup-fraction)"}},
           {{{"dataset", "idx"}}, {"data-dir"}},
           {{{"dataset", "text"}}, {"data-dir"}},
           {{{"dataset", "text"}, {"data-dir", "a"}, {"sampler", "weighted"}},
            {"sampler", "dataset"}},
           {{{"model", "external"}, {"stages", "2"}, {"balance", "1,1"}},
            {"stages = 2", "balance = 1,1", "the programs divide the model"}},
           {{{"model", "external"}, {"stages", "2"}, {"schedule", "gpipe"}}, {"schedule = gpipe"}},
           {{{"model", "external"}, {"stages", "2"}, {"strategy", "allreduce:ring"}},
            {"stages = 2", "allreduce:ring"}},
           {{{"optimizer", "lamb"}, {"strategy", "async"}},
            {"optimizer = lamb", "strategy = async", "norms", "sync, backup:B, local:H"}},
           {{{"optimizer", "lamb"}, {"strategy", "ssp:3"}}, {"optimizer = lamb", "ssp:3"}},
           {{{"optimizer", "lamb"}, {"strategy", "buffered:3"}},
            {"optimizer = lamb", "buffered:3"}},
           {{{"optimizer", "lamb"}, {"strategy", "local:3"}, {"stages", "2"}},
            {"optimizer = lamb", "strategy = local:3", "stages = 2"}},
           {{{"optimizer", "lamb"}, {"strategy", "allreduce:tree"}, {"stages", "2"}},
            {"optimizer = lamb", "allreduce:tree", "stages = 2"}},
           {{{"min-workers", "3"}, {"max-workers", "2"}}, {"min-workers = 3", "max-workers = 2"}},
           {{{"min-workers", "9"}}, {"min-workers = 9", "8 micro-batches"}}}) {
    const std::string text = error_of(flags);
    EXPECT_THAT(text, StartsWith("[job] "));
    for (const std::string& word : named) EXPECT_THAT(text, HasSubstr(word));
  }
}

TEST(Job, OnWorkerLossFollowsTheStrategyUntilItIsGiven) {
  EXPECT_EQ(parse({}).on_worker_loss, OnWorkerLoss::kAbort);
  EXPECT_EQ(parse({{"strategy", "async"}}).on_worker_loss, OnWorkerLoss::kContinue);
  EXPECT_EQ(parse({{"strategy", "ssp:2"}}).on_worker_loss, OnWorkerLoss::kContinue);
  EXPECT_EQ(parse({{"strategy", "ssp:0"}}).on_worker_loss, OnWorkerLoss::kAbort);
  const Job job = parse({{"strategy", "async"}, {"on-worker-loss", "abort"}});
  EXPECT_EQ(job.on_worker_loss, OnWorkerLoss::kAbort);
  EXPECT_EQ(parse_job_text(to_ini(job), "coordinator"), job);
}

TEST(Job, IsCheckedAgainstTheNumberOfWorkers) {
  const Job job = parse({{"min-workers", "2"}, {"max-workers", "4"}});
  for (const int64_t workers : {2, 4}) EXPECT_NO_THROW(check_job_against_workers(job, workers));
  EXPECT_THAT(usage_error([&] { check_job_against_workers(job, 1); }),
              HasSubstr("min-workers = 2"));
  EXPECT_THAT(usage_error([&] { check_job_against_workers(job, 5); }),
              HasSubstr("max-workers = 4"));
}

TEST(Job, IsCheckedAgainstTheData) {
  const Job whole = parse({{"epochs", "3"}, {"global-batch", "64"}, {"stop-after", "60"}});
  EXPECT_EQ(steps_per_epoch(whole, 1347), 21);
  EXPECT_EQ(total_steps(whole, 1347), 63);
  EXPECT_NO_THROW(check_job_against_data(whole, 1347));
  EXPECT_THAT(usage_error([&] { check_job_against_data(whole, 1000); }),
              AllOf(HasSubstr("stop-after = 60"), HasSubstr("45 steps")));
  EXPECT_THAT(usage_error([&] { check_job_against_data(whole, 63); }),
              AllOf(HasSubstr("global-batch = 64"), HasSubstr("63"), HasSubstr("train-samples")));
  const Job external = parse({{"model", "external"}, {"epochs", "3"}, {"global-batch", "64"}});
  EXPECT_THAT(usage_error([&] { check_job_against_data(external, 63); }),
              HasSubstr("the program has 63 training samples"));
  const Job part = parse({{"train-samples", "640"}, {"steps", "5"}});
  EXPECT_EQ(steps_per_epoch(part, 1347), 10);
  EXPECT_EQ(total_steps(part, 1347), 5);
  EXPECT_NO_THROW(check_job_against_data(part, 640));
  EXPECT_THAT(usage_error([&] { check_job_against_data(part, 639); }),
              AllOf(HasSubstr("train-samples = 640"), HasSubstr("639")));
}

TEST(Job, EvaluatesAveragesThatServersKeep) {
  const Job job = parse({{"steps", "40"}, {"ema", "0.9"}, {"eval-weights", "ema"}});
  EXPECT_TRUE(barriers_of(job, 0, 40).averages);
  EXPECT_THAT(keys_that_forbid_resume(parse({{"steps", "40"}, {"ema", "0.9"}}), job), IsEmpty());
  EXPECT_THAT(usage_error([] {
                parse({{"steps", "40"}, {"eval-weights", "ema"}});
              }),
              AllOf(HasSubstr("eval-weights = ema"), HasSubstr("ema = 0.999")));
  EXPECT_THAT(usage_error([] {
                parse({{"steps", "40"}, {"ema", "0.9"}, {"eval-weights", "ema"}, {"stages", "2"}});
              }),
              AllOf(HasSubstr("eval-weights = ema"), HasSubstr("stages = 2")));
}

TEST(Job, ResumeRefusesKeysThatShapeTheWeights) {
  const Job before = parse({{"steps", "40"}});
  EXPECT_THAT(keys_that_forbid_resume(before, before), IsEmpty());
  const Job moved = parse({{"steps", "80"},
                           {"slice-bytes", "4096"},
                           {"checkpoint-dir", "a"},
                           {"checkpoint-every", "5"},
                           {"checkpoint-keep", "9"},
                           {"eval-every", "5"},
                           {"stop-when", "loss:3"},
                           {"checkpoint-best", "true"},
                           {"stop-after", "50"},
                           {"resume", "true"},
                           {"on-worker-loss", "wait"},
                           {"replacement-timeout", "5"},
                           {"heartbeat-timeout", "5"},
                           {"progress-timeout", "5"},
                           {"task-timeout", "5"},
                           {"data-dir", "b"},
                           {"init-from", "c"},
                           {"init-from-missing", "allow"},
                           {"numerics", "any"},
                           {"keep-runs", "2"},
                           {"test-samples", "7"}});
  EXPECT_THAT(keys_that_forbid_resume(before, moved), IsEmpty());
  const Job other = parse({{"steps", "40"}, {"threads", "2"}, {"lr", "0.2"}, {"seed", "2"}});
  EXPECT_THAT(keys_that_forbid_resume(before, other),
              ::testing::UnorderedElementsAre("threads", "lr", "seed"));
}

TEST(Job, LengthMayNotChangeAtAResumeIfRatesDependOnIt) {
  for (const auto& [key, value] : Flags{{"lr-schedule", "cosine"},
                                        {"lr-schedule", "linear"},
                                        {"lr-schedule", "onecycle"},
                                        {"warmup-fraction", "0.1"}}) {
    const Job before = parse({{"steps", "40"}, {key, value}});
    const Job now = parse({{"epochs", "2"}, {key, value}});
    EXPECT_THAT(keys_that_forbid_resume(before, now), ElementsAre("epochs", "steps")) << value;
    const Job fixed = parse({{"steps", "40"}, {key, value}, {"lr-horizon", "50"}});
    const Job longer = parse({{"steps", "60"}, {key, value}, {"lr-horizon", "50"}});
    EXPECT_THAT(keys_that_forbid_resume(fixed, longer), IsEmpty()) << value;
  }
}

TEST(Job, DefaultsOfBeta2AndEpsilonAreThoseOfTheOptimizer) {
  EXPECT_EQ(parse({{"optimizer", "adam"}}).optimizer.beta2, 0.999);
  EXPECT_EQ(parse({{"optimizer", "rmsprop"}}).optimizer.beta2, 0.99);
  EXPECT_EQ(parse({{"optimizer", "lion"}}).optimizer.beta2, 0.99);
  EXPECT_EQ(parse({{"optimizer", "lion"}, {"beta2", "0.999"}}).optimizer.beta2, 0.999);
  EXPECT_EQ(parse({{"optimizer", "adagrad"}}).optimizer.epsilon, 1e-10);
  EXPECT_EQ(parse({{"optimizer", "adagrad"}, {"epsilon", "1e-8"}}).optimizer.epsilon, 1e-8);
  EXPECT_EQ(parse({{"optimizer", "lamb"}}).optimizer.epsilon, 1e-6);
  EXPECT_EQ(parse({{"optimizer", "lamb"}, {"epsilon", "1e-8"}}).optimizer.epsilon, 1e-8);
}

// Each key that may not change is reported if only it differs, so that none is forgotten.
TEST(Job, ResumeSeesADifferenceInEveryKey) {
  const Flags other = {{"model", "convnet"},
                       {"hidden", "1"},
                       {"stem", "cifar"},
                       {"seed", "2"},
                       {"layers", "3"},
                       {"heads", "2"},
                       {"embed", "64"},
                       {"ffn", "5"},
                       {"dropout", "0.5"},
                       {"attention-dropout", "0.5"},
                       {"tie-embeddings", "false"},
                       {"norm", "rms"},
                       {"positions", "128"},
                       {"head-weights", "label:2"},
                       {"label-smoothing", "0.1"},
                       {"dataset", "digits"},
                       {"tokenizer", "bpe"},
                       {"sequence", "5"},
                       {"vocab", "300"},
                       {"train-samples", "100"},
                       {"shuffle", "false"},
                       {"sampler", "weighted"},
                       {"input", "5"},
                       {"classes", "3"},
                       {"global-batch", "72"},
                       {"micro-batch", "4"},
                       {"threads", "2"},
                       {"precision", "bf16"},
                       {"loss-scale", "2"},
                       {"algorithms", "timed"},
                       {"optimizer", "adam"},
                       {"lr", "1"},
                       {"momentum", "0.5"},
                       {"beta1", "0.5"},
                       {"beta2", "0.5"},
                       {"epsilon", "1"},
                       {"weight-decay", "1"},
                       {"lr-schedule", "cosine"},
                       {"lr-step", "3"},
                       {"lr-gamma", "0.5"},
                       {"lr-min", "0.01"},
                       {"lr-milestones", "3"},
                       {"lr-points", "0:1"},
                       {"lr-horizon", "7"},
                       {"warmup-from", "0.05"},
                       {"warmup-steps", "3"},
                       {"clip-norm", "1"},
                       {"strategy", "ssp:1"},
                       {"warmup-fraction", "0.1"},
                       {"no-decay", "*.bias"}};
  for (const auto& [key, value] : other) {
    EXPECT_THAT(keys_that_forbid_resume(parse({}), parse({{key, value}})), ElementsAre(key));
  }
}

std::string reference_page() {
  std::ifstream file(PUSHPULL_SOURCE_DIR "/docs/job-file.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(JobReference, HasARowWithTheDefaultOfEveryKey) {
  const std::string page = reference_page();
  const Job defaults = parse({});
  for (const KeyHelp& help : job_keys()) {
    const std::string row = "\n| `" + help.key + "` |";
    const size_t begin = page.find(row);
    ASSERT_NE(begin, std::string::npos) << help.key;
    const std::string line = page.substr(begin + 1, page.find('\n', begin + 1) - begin - 1);
    EXPECT_THAT(line, HasSubstr("| " + help.value_default + " |"));
    EXPECT_EQ(page.find(row, begin + 1), std::string::npos) << help.key << " has two rows";
  }
}

TEST(JobReference, ExampleNamesEveryKey) {
  const std::string page = reference_page();
  const size_t begin = page.find("```ini\n");
  ASSERT_NE(begin, std::string::npos);
  const std::string ini = page.substr(begin + 7, page.find("\n```", begin) - begin - 6);
  const Job job = parse_job_text(ini, "docs/job-file.md");
  EXPECT_NE(job, Job{});
  for (const KeyHelp& help : job_keys()) {
    EXPECT_THAT("\n" + ini, HasSubstr("\n" + help.key + " = ")) << help.key;
  }
}

}  // namespace
}  // namespace pushpull
