// Tests --deepspeed: which keys of a job a ds_config.json becomes, and what is refused.
#include "cli/run/deepspeed_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "common/job/job.h"
#include "tests/common/scratch_folder.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using Keys = std::map<std::string, std::string>;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Pair;

constexpr const char* kBatch = R"("train_batch_size": 32, "train_micro_batch_size_per_gpu": 8)";

DeepSpeedKeys read(const std::string& members, int64_t workers = 2, double lr = 0.0) {
  return read_deepspeed("{" + members + "}", "ds.json", lr, workers);
}

Keys keys_of(const std::string& members, int64_t workers = 2, double lr = 0.0) {
  return read(kBatch + (", " + members), workers, lr).keys;
}

std::string error_of(const std::string& members, int64_t workers = 2) {
  return thrown(ErrorCode::kUsage, [&] { read(members, workers); });
}

std::string optimizer(const std::string& type, const std::string& params) {
  return R"("optimizer": {"type": ")" + type + R"(", "params": {)" + params + "}}";
}

std::string scheduler(const std::string& type, const std::string& params) {
  return R"("scheduler": {"type": ")" + type + R"(", "params": {)" + params + "}}";
}

TEST(DeepSpeed, TwoOfTheThreeBatchSizesGiveTheThird) {
  const auto batch = [](const std::string& members, int64_t workers = 2) {
    const Keys keys = read(members, workers).keys;
    return keys.at("global-batch") + " " + keys.at("micro-batch");
  };
  EXPECT_EQ(batch(kBatch), "32 8");
  EXPECT_EQ(batch(R"("train_batch_size": 32, "gradient_accumulation_steps": 4)"), "32 4");
  EXPECT_EQ(batch(R"("train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 3)"),
            "48 8");
  EXPECT_EQ(batch(R"("train_batch_size": 32)"), "32 16");
  EXPECT_EQ(batch(R"("train_micro_batch_size_per_gpu": 8)", 5), "40 8");
  EXPECT_EQ(batch(R"("train_batch_size": 32, "train_micro_batch_size_per_gpu": "auto",
                     "gradient_accumulation_steps": "auto")"),
            "32 16");
  const std::string all = std::string(kBatch) + R"(, "gradient_accumulation_steps": )";
  EXPECT_EQ(batch(all + "2"), "32 8");
  EXPECT_EQ(batch(all + "1", 0), "32 8") << "any number of workers: pushpull compare";
  EXPECT_THAT(error_of(all + "1"),
              AllOf(HasSubstr("8 x gradient_accumulation_steps 1 x 2 workers = 16"),
                    HasSubstr("take --workers 4"), HasSubstr("leave gradient_accumulation_steps")));
  EXPECT_THAT(error_of(all + "3"), Not(HasSubstr("--workers")));
  EXPECT_THAT(error_of(R"("train_batch_size": 33)"), HasSubstr("33 is no multiple of"));
  EXPECT_THAT(error_of(R"("train_batch_size": 33)", 0),
              HasSubstr("train_micro_batch_size_per_gpu is missing"));
  EXPECT_THAT(error_of(R"("train_batch_size": 1.5)"), HasSubstr("a whole number from 1"));
  EXPECT_THAT(error_of(R"("train_batch_size": "32")"), HasSubstr("must be a number"));
  EXPECT_THAT(error_of(R"("train_micro_batch_size_per_gpu": 1000000000,
                          "gradient_accumulation_steps": 1000000)"),
              HasSubstr("must be at most"));
  EXPECT_THAT(read("").missing, ElementsAre(Pair("global-batch", "train_batch_size")));
  EXPECT_THAT(read(R"("train_batch_size": "auto")").missing,
              ElementsAre(Pair("global-batch", "train_batch_size")));
}

TEST(DeepSpeed, AdamIsAdamWUnlessTheFileSaysOtherwise) {
  EXPECT_THAT(keys_of(optimizer("Adam", R"("lr": 0.01, "weight_decay": 0.1)")),
              IsSupersetOf(Keys{{"optimizer", "adamw"},
                                {"lr", "0.01"},
                                {"beta1", "0.9"},
                                {"beta2", "0.999"},
                                {"epsilon", "1e-08"},
                                {"weight-decay", "0.1"},
                                {"no-decay", "none"}}));
  EXPECT_EQ(keys_of(optimizer("ADAM", R"("adam_w_mode": false)")).at("optimizer"), "adam");
  EXPECT_EQ(keys_of(optimizer("AdamW", R"("adam_w_mode": false)")).at("optimizer"), "adamw");
  EXPECT_EQ(keys_of(optimizer("Adam", R"("torch_adam": true)")).at("weight-decay"), "0.01");
  EXPECT_EQ(keys_of(optimizer("AdamW", "")).at("lr"), "0.001");
  EXPECT_THAT(keys_of(optimizer("AdamW", R"("betas": [0.8, 0.95], "eps": 1e-6)")),
              IsSupersetOf(Keys{{"beta1", "0.8"}, {"beta2", "0.95"}, {"epsilon", "1e-06"}}));
}

TEST(DeepSpeed, OtherOptimizersAreThoseOfTorch) {
  EXPECT_EQ(keys_of(optimizer("SGD", R"("lr": 0.1)")).at("optimizer"), "sgd");
  EXPECT_THAT(keys_of(optimizer("SGD", R"("lr": 0.1, "momentum": 0.8)")),
              IsSupersetOf(Keys{{"optimizer", "momentum"}, {"momentum", "0.8"}}));
  EXPECT_EQ(keys_of(optimizer("SGD", R"("momentum": 0.8, "nesterov": true)")).at("optimizer"),
            "nesterov");
  EXPECT_THAT(keys_of(optimizer("RMSprop", R"("alpha": 0.9)")),
              IsSupersetOf(Keys{{"optimizer", "rmsprop"}, {"beta2", "0.9"}, {"lr", "0.01"}}));
  EXPECT_THAT(keys_of(optimizer("Adagrad", "")),
              IsSupersetOf(Keys{{"optimizer", "adagrad"}, {"epsilon", "1e-10"}}));
  EXPECT_THAT(keys_of(optimizer("Lion", "")),
              IsSupersetOf(Keys{{"optimizer", "lion"}, {"lr", "1e-04"}, {"beta2", "0.99"}}));
}

TEST(DeepSpeed, WhatAnOptimizerLacksIsRefused) {
  const auto refused = [](const std::string& type, const std::string& params) {
    return error_of(kBatch + (", " + optimizer(type, params)));
  };
  EXPECT_THAT(
      refused("OneBitLamb", ""),
      HasSubstr("'OneBitLamb': servers have Adam, AdamW, SGD, RMSprop, Adagrad, Lion and Lamb"));
  EXPECT_THAT(refused("Lamb", R"("eps_inside_sqrt": true)"), HasSubstr("eps_inside_sqrt is true"));
  EXPECT_THAT(refused("Lamb", R"("bias_correction": false)"),
              HasSubstr("lamb corrects its moments here"));
  EXPECT_THAT(refused("Adam", R"("amsgrad": true)"), HasSubstr("amsgrad is true"));
  EXPECT_THAT(refused("Adam", R"("max_grad_norm": 1)"), HasSubstr("gradient_clipping"));
  EXPECT_THAT(refused("Adam", R"("betas": [0.9])"), HasSubstr("must be two numbers"));
  EXPECT_THAT(refused("SGD", R"("dampening": 0.5)"), HasSubstr("dampening is 0.5"));
  EXPECT_THAT(refused("RMSprop", R"("momentum": 0.5)"), HasSubstr("momentum is 0.5"));
  EXPECT_THAT(refused("Adam", R"("lrr": 1)"),
              HasSubstr("unknown key optimizer.params.lrr; did you mean lr?"));
}

TEST(DeepSpeed, LambIsThatOfTheServersAndItsBoundsAreNamed) {
  const std::string keys =
      R"("lr": 0.002, "betas": [0.8, 0.95], "weight_decay": 0.1, "max_coeff": 0.3, "bias_correction": true)";
  EXPECT_THAT(keys_of(optimizer("Lamb", keys)), IsSupersetOf(Keys{{"optimizer", "lamb"},
                                                                  {"lr", "0.002"},
                                                                  {"beta1", "0.8"},
                                                                  {"beta2", "0.95"},
                                                                  {"epsilon", "1e-08"},
                                                                  {"weight-decay", "0.1"},
                                                                  {"no-decay", "none"}}));
  EXPECT_THAT(read(kBatch + (", " + optimizer("Lamb", keys))).notes,
              Contains(HasSubstr("from min_coeff 0.01 to max_coeff 0.3")));
}

// The arithmetic of the schedules is held against DeepSpeed's formulas in optimizer_torch_test.py.
TEST(DeepSpeed, SchedulersAreSchedulesOfTheJob) {
  const std::string adam = optimizer("Adam", R"("lr": 0.002)") + ", ";
  EXPECT_THAT(keys_of(adam + scheduler("WarmupLR", R"("warmup_num_steps": 5)")),
              IsSupersetOf(Keys{{"lr", "0.002"},
                                {"lr-schedule", "constant"},
                                {"warmup-shape", "deepspeed-log"},
                                {"warmup-steps", "5"},
                                {"warmup-from", "0"}}));
  EXPECT_THAT(keys_of(adam + scheduler("WarmupDecayLR",
                                       R"("total_num_steps": 20, "warmup_type": "linear",
                                          "warmup_min_lr": 0.0001, "warmup_max_lr": 0.003)")),
              IsSupersetOf(Keys{{"lr", "0.003"},
                                {"lr-schedule", "linear"},
                                {"lr-horizon", "20"},
                                {"lr-min", "1e-04"},
                                {"warmup-shape", "deepspeed-linear"},
                                {"warmup-steps", "1000"},
                                {"warmup-from", "1e-04"}}));
  const std::string cosine =
      adam + scheduler("WarmupCosineLR", R"("total_num_steps": "auto", "warmup_min_ratio": 0.5,
                                            "warmup_num_steps": 7)");
  EXPECT_THAT(keys_of(cosine), IsSupersetOf(Keys{{"lr", "0.002"},
                                                 {"lr-schedule", "cosine"},
                                                 {"lr-min", "2.0000000000000002e-07"},
                                                 {"warmup-from", "0.001"}}));
  EXPECT_FALSE(keys_of(cosine).contains("lr-horizon")) << "the job's steps";
  EXPECT_EQ(keys_of(cosine, 2, 0.004).at("warmup-from"), "0.002") << "with --lr 0.004";
  EXPECT_THAT(
      keys_of(optimizer("SGD", "") + ", " +
              scheduler("OneCycle", R"("cycle_min_lr": 0.001, "cycle_max_lr": 0.1,
                                               "cycle_first_step_size": 10,
                                               "cycle_second_step_size": 30)")),
      IsSupersetOf(Keys{{"lr-schedule", "points"}, {"lr-points", "0:0.001,10:0.1,40:0.001"}}));
}

TEST(DeepSpeed, WhatASchedulerLacksIsRefused) {
  const auto refused = [](const std::string& type, const std::string& params) {
    return error_of(kBatch + (", " + optimizer("Adam", "") + ", " + scheduler(type, params)));
  };
  EXPECT_THAT(refused("LRRangeTest", ""), HasSubstr("'LRRangeTest': the job has WarmupLR"));
  EXPECT_THAT(refused("WarmupDecayLR", ""), HasSubstr("total_num_steps is missing"));
  EXPECT_THAT(refused("WarmupLR", R"("warmup_type": "cubic")"), HasSubstr("log or linear"));
  EXPECT_THAT(refused("WarmupLR", R"("warmup_max_lr": [0.1, 0.2])"), HasSubstr("a number"));
  const std::string rates = R"("cycle_min_lr": 0.001, "cycle_max_lr": 0.1)";
  EXPECT_THAT(refused("OneCycle", rates), HasSubstr("cycle_momentum"));
  const std::string fixed = rates + R"(, "cycle_momentum": false)";
  EXPECT_THAT(refused("OneCycle", fixed), IsEmpty());
  EXPECT_THAT(refused("OneCycle", fixed + R"(, "decay_lr_rate": 0.1, "decay_step_size": 5)"),
              HasSubstr("decay_lr_rate"));
  EXPECT_THAT(refused("OneCycle", fixed + R"(, "cycle_first_stair_count": 3)"),
              HasSubstr("no stairs"));
}

TEST(DeepSpeed, EachOtherKeyIsTakenNamedOrRefused) {
  const DeepSpeedKeys found = read(std::string(kBatch) + R"(,
      "gradient_clipping": 0.5, "communication_data_type": "bf16", "steps_per_print": 10,
      "wall_clock_breakdown": false, "bf16": {"enabled": true}, "fp16": {"enabled": false},
      "zero_optimization": {"stage": 3, "overlap_comm": true, "reduce_bucket_size": "auto"},
      "elasticity": {"enabled": false})");
  EXPECT_THAT(found.keys, IsSupersetOf(Keys{{"clip-norm", "0.5"}, {"codec", "bf16"}}));
  EXPECT_THAT(found.notes,
              ElementsAre(HasSubstr("no optimizer"), HasSubstr("bf16: the script's own"),
                          AllOf(HasSubstr("stage 3"), HasSubstr("docs/pipeline.md")),
                          "without effect here: steps_per_print, wall_clock_breakdown"));
  EXPECT_THAT(error_of(std::string(kBatch) + R"(, "elasticity": {"enabled": true})"),
              HasSubstr("elasticity is not offered"));
  EXPECT_THAT(error_of(std::string(kBatch) + R"(, "no_such_key": 1)"),
              HasSubstr("unknown key no_such_key"));
  EXPECT_THAT(error_of(std::string(kBatch) + R"(, "zero_optimization": {"stage": 4})"),
              HasSubstr("from 0 to 3"));
  EXPECT_THAT(error_of(std::string(kBatch) + R"(, "zero_optimization": {"stagee": 1})"),
              HasSubstr("zero_optimization.stagee"));
  EXPECT_THAT(error_of(std::string(kBatch) + R"(, "sparse_gradients": true)"),
              HasSubstr("sparse_gradients is true"));
  EXPECT_THAT(thrown(ErrorCode::kUsage, [] { read_deepspeed("{", "ds.json", 0.0, 1); }),
              HasSubstr("ds.json is not an object in JSON"));
  EXPECT_THAT(thrown(ErrorCode::kUsage, [] { read_deepspeed("[1]", "ds.json", 0.0, 1); }),
              HasSubstr("ds.json is not an object in JSON"));
}

class DeepSpeedFlag : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  CommandLine line(Keys keys, bool with_job = false) {
    CommandLine out;
    out.keys = std::move(keys);
    out.local["deepspeed"] = folder_ / "ds.json";
    if (with_job) out.local["job"] = folder_ / "job.ini";
    return out;
  }

  ScratchFolder folder_;
};

TEST_F(DeepSpeedFlag, FlagsComeFirstAndTheJobFileMustAgree) {
  write("ds.json", "{" + std::string(kBatch) + ", " + optimizer("SGD", R"("lr": 0.5)") + "}");
  CommandLine flags = line({{"lr", "0.25"}});
  flags.local["worker"] = "true";
  EXPECT_THAT(add_deepspeed_keys(flags, 2),
              ElementsAre(AllOf(HasSubstr("global-batch = 32"), Not(HasSubstr("lr =")))));
  EXPECT_EQ(flags.keys.at("lr"), "0.25");
  EXPECT_EQ(flags.keys.at("model"), "external");
  const Job job = parse_job("", flags.keys);
  EXPECT_EQ(job.micro_batch, 8);

  write("job.ini", "lr = 5e-1\nsteps = 5\n");
  CommandLine same = line({}, true);
  add_deepspeed_keys(same, 2);
  EXPECT_EQ(same.keys.at("lr"), "0.5");
  write("job.ini", "lr = 0.1\n");
  CommandLine other = line({}, true);
  EXPECT_THAT(
      thrown(ErrorCode::kUsage, [&] { add_deepspeed_keys(other, 2); }),
      AllOf(HasSubstr("says lr = 0.5"), HasSubstr("job.ini:1 lr = 0.1"), HasSubstr("give --lr")));
  CommandLine both = line({{"lr", "0.3"}}, true);
  add_deepspeed_keys(both, 2);
  EXPECT_EQ(both.keys.at("lr"), "0.3");
  CommandLine none;
  EXPECT_THAT(add_deepspeed_keys(none, 2), IsEmpty());
}

TEST_F(DeepSpeedFlag, AutoNeedsAValueFromElsewhere) {
  write("ds.json", R"({"train_batch_size": "auto", "optimizer": {"type": "AdamW",
                       "params": {"lr": "auto", "betas": "auto"}}})");
  CommandLine open = line({{"global-batch", "8"}});
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { add_deepspeed_keys(open, 2); }),
              AllOf(HasSubstr("Hugging Face"), HasSubstr("--beta1")));
  CommandLine given =
      line({{"global-batch", "8"}, {"beta1", "0.9"}, {"beta2", "0.9"}, {"lr", "0.1"}});
  add_deepspeed_keys(given, 2);
  EXPECT_EQ(given.keys.at("lr"), "0.1");
  EXPECT_EQ(given.keys.at("optimizer"), "adamw");
  CommandLine missing = line({});
  missing.local["deepspeed"] = folder_ / "absent.json";
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { add_deepspeed_keys(missing, 2); }),
              HasSubstr("absent.json"));
}

}  // namespace
}  // namespace pushpull
