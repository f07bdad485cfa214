#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/job/job.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

Checkpoint checkpoint_of(std::vector<TensorInfo> tensors) {
  Checkpoint checkpoint;
  for (TensorInfo& tensor : tensors) {
    checkpoint.table.add(std::move(tensor));
  }
  for (int64_t i = 0; i < checkpoint.table.total; ++i) {
    checkpoint.weights.push_back(static_cast<float>(i));
  }
  return checkpoint;
}

TensorTable model_table() {
  TensorTable table;
  table.add({.name = "w", .shape = {2, 2}});
  table.add({.name = "b", .shape = {2}});
  return table;
}

std::string refusal(const Checkpoint& checkpoint) {
  return thrown(ErrorCode::kData, [&] { weights_for(checkpoint, model_table(), "ckpt"); });
}

TEST(EvalCommand, ReadsTheWeightsInTheModelsOrderForAnyOrderInTheFile) {
  const Checkpoint checkpoint =
      checkpoint_of({{.name = "b", .shape = {2}}, {.name = "w", .shape = {2, 2}}});
  EXPECT_EQ(weights_for(checkpoint, model_table(), "ckpt"), (std::vector<float>{2, 3, 4, 5, 0, 1}));
}

TEST(EvalCommand, NamesTheMismatchedTensor) {
  EXPECT_THAT(refusal(checkpoint_of({{.name = "w", .shape = {2, 2}}})),
              HasSubstr("ckpt: no tensor b [2]"));
  EXPECT_THAT(refusal(checkpoint_of({{.name = "w", .shape = {4}}, {.name = "b", .shape = {2}}})),
              HasSubstr("tensor w has shape [4], the model needs [2, 2]"));
  EXPECT_THAT(refusal(checkpoint_of({{.name = "w", .shape = {2, 2}},
                                     {.name = "b", .shape = {2}},
                                     {.name = "extra", .shape = {1}}})),
              HasSubstr("tensor extra is unknown to the model"));
}

TEST(EvalCommand, WithoutACheckpointSaysWhichFlagIsMissing) {
  const char* const argv[] = {"eval", "--json"};
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { eval_command(2, argv); }), HasSubstr("--checkpoint"));
}

// A checkpoint of an untrained mlp for the digits, in a folder of its own.
class EvalOfCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "eval_command_test.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
    const Job job = parse_job("", {{"model", "mlp"},
                                   {"hidden", "16"},
                                   {"dataset", "digits"},
                                   {"steps", "10"},
                                   {"micro-batch", "16"}});
    const std::unique_ptr<Dataset> dataset = open_dataset(job);
    const TensorTable table = make_model(job, dataset->fields())->table();
    std::vector<float> weights(static_cast<size_t>(table.total));
    fill_uniform(5, RandomStream::kInit, 0, 0, 0.3F, weights.size(), weights.data());
    CheckpointState state;
    state.step = 7;
    state.total_steps = 10;
    state.job_ini = to_ini(job);
    CheckpointStore(dir_.string(), 1).write(state, table, weights, {}, {});
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // Returns the output of `pushpull eval --checkpoint DIR --json` with the flags.
  nlohmann::json eval(const std::vector<const char*>& flags) const {
    return eval_of(dir_.string(), flags);
  }
  static nlohmann::json eval_of(const std::string& folder, const std::vector<const char*>& flags) {
    std::vector<const char*> argv = {"eval", "--json", "--checkpoint", folder.c_str()};
    argv.insert(argv.end(), flags.begin(), flags.end());
    ::testing::internal::CaptureStdout();
    std::string error;
    try {
      EXPECT_EQ(eval_command(static_cast<int>(argv.size()), argv.data()), 0);
    } catch (const Error& e) {
      error = e.what();
    }
    const std::string out = ::testing::internal::GetCapturedStdout();
    return error.empty() ? nlohmann::json::parse(out) : nlohmann::json{{"error", error}};
  }

  std::filesystem::path dir_;
};

TEST_F(EvalOfCheckpoint, CountsTheWholeTestSplitWithAnyNumberOfThreads) {
  const nlohmann::json one = eval({});
  EXPECT_EQ(one.value("error", ""), "");
  EXPECT_EQ(one["test_total"], 359) << "every fifth of 1,797: the last chunk has 7 of 16 samples";
  EXPECT_GT(one["test_correct"], 0);
  EXPECT_LT(one["test_correct"], 180) << "the model is untrained";
  EXPECT_GT(one["test_loss"], 1.0);
  EXPECT_EQ(one["step"], 7);
  EXPECT_EQ(eval({"--threads", "2"})["test_correct"], one["test_correct"]);
  EXPECT_EQ(eval({"--dataset", "digits"})["test_correct"], one["test_correct"]);
}

TEST_F(EvalOfCheckpoint, TakesAPathThatIsNotUtf8) {
  const std::filesystem::path link = dir_ / "\xff";
  std::filesystem::create_directory_symlink(whole_checkpoints(dir_).at(7), link);
  const nlohmann::json found = eval_of(link, {});
  EXPECT_EQ(found["step"], 7) << found.dump();
  EXPECT_THAT(found["checkpoint"].get<std::string>(), HasSubstr("\xEF\xBF\xBD"));
}

TEST_F(EvalOfCheckpoint, RefusesADatasetThatDoesNotFitOrIsUnknown) {
  EXPECT_THAT(eval({"--dataset", "dummy"})["error"].get<std::string>(),
              HasSubstr("[16, 64], the model needs [16, 784]"));
  EXPECT_THAT(eval({"--dataset", "imagenot"})["error"].get<std::string>(), HasSubstr("imagenot"));
  EXPECT_THAT(eval({"--dataset", "idx", "--data-dir", "/nowhere"})["error"].get<std::string>(),
              HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace pushpull
