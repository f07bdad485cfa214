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
using testing::IsEmpty;

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

TEST_F(OtherTensors, OfOtherTypesAreConvertedOrLeftOut) {
  // body: 1, -2 and 2^-24 in F16; head: 1.5 and -3 in BF16; a counter, a mask, and a tensor without elements
  const std::string header = R"({"body":{"dtype":"F16","shape":[3],"data_offsets":[0,6]},)"
                             R"("head":{"dtype":"BF16","shape":[2],"data_offsets":[6,10]},)"
                             R"("empty":{"dtype":"F32","shape":[0,4],"data_offsets":[10,10]},)"
                             R"("counter":{"dtype":"I64","shape":[],"data_offsets":[10,18]},)"
                             R"("mask":{"dtype":"BOOL","shape":[1,2],"data_offsets":[18,20]},)"
                             R"("young":{"dtype":"F4","shape":[1,3],"data_offsets":[20,22]}})";
  const std::string data(
      "\x00\x3c\x00\xc0\x01\x00\xc0\x3f\x40\xc0"
      "12345678"
      "12"
      "ab",
      22);
  const uint64_t bytes = header.size();
  std::string file(reinterpret_cast<const char*>(&bytes), 8);
  write_bytes(path_, file + header + data);
  for (const std::vector<float>& drawn : {std::vector<float>(), drawn_}) {
    const InitialWeights found = read_initial_weights(path_, table_, drawn);
    EXPECT_EQ(found.weights, (std::vector<float>{1.0F, -2.0F, 0x1p-24F, 1.5F, -3.0F}));
    EXPECT_THAT(found.missing, IsEmpty());
    EXPECT_THAT(found.unused, ElementsAre("counter", "empty", "mask", "young"));
  }
  table_.add({.name = "mask", .shape = {1, 2}});
  EXPECT_THAT(refusal({}), HasSubstr("\"mask\" is BOOL: expected F32, F16, BF16 or F64"));
}

TEST_F(OtherTensors, MayBeInTheFilesOfAnIndex) {
  const std::string index = folder_ / "model.safetensors.index.json";
  write_safetensors(folder_ / "1.safetensors", std::vector<NamedTensor>{{"body", {3}, three_}}, {});
  write_safetensors(folder_ / "2.safetensors", std::vector<NamedTensor>{{"head", {2}, two_}}, {});
  write_bytes(
      index,
      R"({"metadata": {}, "weight_map": {"body": "1.safetensors", "head": "2.safetensors"}})");
  EXPECT_EQ(read_initial_weights(index, table_).weights, (std::vector<float>{7, 8, 9, 10, 11}));
  const auto refused = [&](const std::string& text) {
    write_bytes(index, text);
    try {
      read_initial_weights(index, table_);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused("{}"), HasSubstr("not an index"));
  EXPECT_THAT(refused(std::string(1'000'000, '[')), HasSubstr("not an index"));
  EXPECT_THAT(refused(R"({"weight_map": {"body": "../1.safetensors"}})"),
              HasSubstr("the name of a file in the same folder"));
  EXPECT_THAT(refused(R"({"weight_map": {"body": "3.safetensors"}})"), HasSubstr("3.safetensors"));
  write_safetensors(folder_ / "2.safetensors", std::vector<NamedTensor>{{"body", {3}, three_}}, {});
  EXPECT_THAT(refused(R"({"weight_map": {"body": "1.safetensors", "head": "2.safetensors"}})"),
              HasSubstr("in another file of the index, too"));
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
