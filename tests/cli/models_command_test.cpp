#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/commands.h"
#include "common/base/error.h"
#include "common/job/job.h"
#include "common/job/job_keys.h"
#include "models/graph_model.h"
#include "models/ops/ops.h"

namespace pushpull {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Job job_of(const std::string& lines) {
  return parse_job_text("dataset = dummy\nsteps = 1\n" + lines, "test");
}

json described(const Job& job, const FieldTable& fields) {
  std::ostringstream out;
  describe_model_json(out, job, fields);
  return json::parse(out.str());
}

std::vector<std::string> words_of_keys() {
  std::vector<std::string> words;
  for (const KeyHelp& key : job_keys()) words.push_back(key.key);
  return words;
}

TEST(ModelsCommand, ListsEachModelWithKeysOfTheJob) {
  std::ostringstream table;
  list_models(table, false);
  EXPECT_THAT(table.str(), HasSubstr("resnet18     images with a label    stem"));
  std::ostringstream out;
  list_models(out, true);
  const json list = json::parse(out.str());
  EXPECT_GE(list.size(), 5);
  const std::vector<std::string> keys = words_of_keys();
  for (const json& model : list) {
    EXPECT_FALSE(model["data"].get<std::string>().empty()) << model;
    for (const json& key : model["keys"]) {
      EXPECT_EQ(std::ranges::count(keys, key.get<std::string>()), 1) << model;
    }
  }
}

// 4 inputs, 3 hidden, 2 classes: 4 * 3 + 3 + 3 * 2 + 2 parameters.
TEST(ModelsCommand, CountsParametersAndOperationsOfAnMlpByHand) {
  const Job job = job_of("model = mlp\nhidden = 3\nglobal-batch = 40\nmicro-batch = 8\n");
  const json j = described(job, image_fields({1, 2, 2}, 2));
  EXPECT_EQ(j["parameters"], 23);
  EXPECT_EQ(j["statistics"], 0);
  EXPECT_EQ(j["flops"], 6 * (4 * 3 + 3 * 2));
  EXPECT_EQ(j["weights_bytes"], 4 * 23);
  EXPECT_EQ(j["gradient_buffers"], 3);  // five micro-batches: (0 1) (2 3) wait for 4
  EXPECT_EQ(j["gradients_bytes"], 3 * 4 * 23);
  EXPECT_EQ(j["memory_bytes"], j["weights_bytes"].get<int64_t>() +
                                   j["gradients_bytes"].get<int64_t>() +
                                   j["arena_bytes"].get<int64_t>());
  EXPECT_EQ(j["tensors"][0]["name"], "layers.0.weight");
  EXPECT_EQ(j["tensors"][0]["shape"], json({3, 4}));
  EXPECT_EQ(j["heads"][0]["metric"], "accuracy");
  EXPECT_EQ(j["fields"][1]["limit"], 2);
}

TEST(ModelsCommand, TellsParametersOfResnetFromItsStatistics) {
  const Job job = job_of("model = resnet18\nstem = cifar\nglobal-batch = 8\nmicro-batch = 2\n");
  const json j = described(job, image_fields({1, 28, 28}, 10));
  EXPECT_EQ(j["parameters"], 11'172'810);
  EXPECT_EQ(j["statistics"], 9'600);
  EXPECT_GT(j["flops"], 0);
  EXPECT_EQ(j["heads"].size(), 1);
}

TEST(ModelsCommand, StatesTheArenaThatATrainingModelHas) {
  const Job job = job_of("model = convnet\nglobal-batch = 8\nmicro-batch = 4\n");
  const FieldTable fields = image_fields({1, 28, 28}, 10);
  const std::unique_ptr<Model> model = make_model_on(ops::make_cpu_backend(1), job, fields);
  EXPECT_EQ(figures_of_model(job, fields).arena_bytes,
            dynamic_cast<GraphModel&>(*model).graph().arena_bytes());
}

TEST(ModelsCommand, PrintsALineForEachTensorOnRequest) {
  const Job job = job_of("model = mlp\nhidden = 3\n");
  const FieldTable fields = image_fields({1, 2, 2}, 2);
  std::ostringstream out;
  describe_model(out, job, fields, false);
  EXPECT_THAT(out.str(), HasSubstr("parameters   23 trained\n"));
  EXPECT_THAT(out.str(), Not(HasSubstr("layers.0.bias")));
  describe_model(out, job, fields, true);
  EXPECT_THAT(out.str(), HasSubstr("layers.0.bias [3] trained\n"));
}

TEST(ModelsCommand, RefusesWordsAndTensorsWithoutAJob) {
  const auto refusal = [](std::vector<const char*> words) {
    try {
      models_command(static_cast<int>(words.size()), words.data());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal({"models", "resnet18"}), HasSubstr("'resnet18' is not a flag"));
  EXPECT_THAT(refusal({"models", "--tensors"}), HasSubstr("--job FILE"));
}

}  // namespace
}  // namespace pushpull
