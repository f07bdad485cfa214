// Initial weights from a file with other tensors than the model's (init-from-missing = allow).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/io/checkpoint.h"
#include "common/io/safetensors.h"
#include "tests/common/scratch_folder.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class OtherTensors : public testing::Test {
 protected:
  OtherTensors() {
    table_.add({.name = "body", .shape = {3}});
    table_.add({.name = "head", .shape = {2}});
  }
  void write(const std::vector<NamedTensor>& tensors) { write_safetensors(path_, tensors, {}); }
  std::string refusal(std::vector<float> drawn) {
    return thrown(ErrorCode::kData, [&] { read_initial_weights(path_, table_, std::move(drawn)); });
  }

  const ScratchFolder folder_;
  const std::string path_ = folder_ / "weights.safetensors";
  TensorTable table_;
  const std::vector<float> drawn_ = {1, 2, 3, 4, 5};
  const std::vector<float> three_ = {7, 8, 9};
  const std::vector<float> two_ = {10, 11};
};

TEST_F(OtherTensors, MissingOnesAreDrawnAndUnknownOnesAreLeftOut) {
  write({{"body", {3}, three_}, {"pooler", {2}, two_}});
  const InitialWeights found = read_initial_weights(path_, table_, drawn_);
  EXPECT_EQ(found.weights, (std::vector<float>{7, 8, 9, 4, 5}));
  EXPECT_THAT(found.missing, ElementsAre("head"));
  EXPECT_THAT(found.unused, ElementsAre("pooler"));
}

TEST_F(OtherTensors, AreRefusedUnlessTheJobAllowsThem) {
  write({{"body", {3}, three_}});
  EXPECT_THAT(refusal({}),
              HasSubstr("\"head\" of the model is missing; init-from-missing = allow"));
  write({{"body", {3}, three_}, {"head", {2}, two_}, {"pooler", {2}, two_}});
  EXPECT_THAT(refusal({}), HasSubstr("\"pooler\" is unknown"));
}

TEST_F(OtherTensors, AnotherShapeOrNothingInCommonIsAnErrorInAnyCase) {
  write({{"body", {2}, two_}});
  EXPECT_THAT(refusal(drawn_), HasSubstr("\"body\" has shape [2], the model's is [3]"));
  write({{"pooler", {2}, two_}});
  EXPECT_THAT(refusal(drawn_),
              HasSubstr("no tensor of the model is in it; the first one is \"body\""));
}

TEST_F(OtherTensors, MayHaveTheNamesOfPretrainedFiles) {
  TensorTable table;
  table.add({.name = "bert.embeddings.LayerNorm.weight", .shape = {2}});
  table.add({.name = "transformer.wte.weight", .shape = {3}});
  write({{"bert.embeddings.LayerNorm.gamma", {2}, two_}, {"wte.weight", {3}, three_}});
  EXPECT_EQ(read_initial_weights(path_, table, {}).weights, (std::vector<float>{10, 11, 7, 8, 9}));
  // the model's own name comes first
  write({{"embeddings.LayerNorm.gamma", {2}, two_},
         {"transformer.wte.weight", {3}, three_},
         {"wte.weight", {2}, two_}});
  const InitialWeights found = read_initial_weights(path_, table, drawn_);
  EXPECT_EQ(found.weights, (std::vector<float>{10, 11, 7, 8, 9}));
  EXPECT_THAT(found.unused, ElementsAre("wte.weight"));
}

}  // namespace
}  // namespace pushpull
