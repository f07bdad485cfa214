#include "cli/eval_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.h"

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
  try {
    weights_for(checkpoint, model_table(), "ckpt");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kData);
    return error.what();
  }
  return "";
}

TEST(EvalCommand, TakesTheWeightsInTheModelsOrderWhateverTheFiles) {
  const Checkpoint checkpoint =
      checkpoint_of({{.name = "b", .shape = {2}}, {.name = "w", .shape = {2, 2}}});
  EXPECT_EQ(weights_for(checkpoint, model_table(), "ckpt"), (std::vector<float>{2, 3, 4, 5, 0, 1}));
}

TEST(EvalCommand, NamesTheTensorThatDoesNotFitTheModel) {
  EXPECT_THAT(refusal(checkpoint_of({{.name = "w", .shape = {2, 2}}})),
              HasSubstr("ckpt: no tensor b [2]"));
  EXPECT_THAT(refusal(checkpoint_of({{.name = "w", .shape = {4}}, {.name = "b", .shape = {2}}})),
              HasSubstr("tensor w has shape [4], the model needs [2x2]"));
  EXPECT_THAT(refusal(checkpoint_of({{.name = "w", .shape = {2, 2}},
                                     {.name = "b", .shape = {2}},
                                     {.name = "extra", .shape = {1}}})),
              HasSubstr("tensor extra is unknown to the model"));
}

TEST(EvalCommand, WithoutACheckpointSaysWhichFlagIsMissing) {
  const char* const argv[] = {"eval", "--json"};
  try {
    eval_command(2, argv);
    FAIL() << "went on without a checkpoint";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("--checkpoint"));
  }
}

}  // namespace
}  // namespace pushpull
