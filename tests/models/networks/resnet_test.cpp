// The models resnet18 and resnet50: their tensors, and their gradients against differences of a loss
// that plain loops in double compute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "common/base/error.h"
#include "models/layers.h"
#include "models/models.h"
#include "tests/device/fake_device.h"
#include "tests/models/fixture.h"
#include "tests/models/queued_backend.h"
#include "tests/models/reference_graph.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

Job resnet_job(const std::string& model, const std::string& stem, int64_t samples) {
  Job job;
  job.model = model;
  job.stem = stem;
  job.micro_batch = samples;
  return job;
}

std::map<std::string, TensorInfo> tensors_of(const Graph& graph) {
  std::map<std::string, TensorInfo> tensors;
  for (const TensorInfo& tensor : graph.table.tensors) tensors[tensor.name] = tensor;
  return tensors;
}

TEST(Resnet, HasTheTensorsOfTorchvision) {
  const Graph graph =
      resnet50_graph(resnet_job("resnet50", "imagenet", 2), image_fields({3, 224, 224}, 1000));
  EXPECT_EQ(graph.table.trainable(), 25'557'032);
  EXPECT_EQ(graph.table.tensors.size(), 267U);  // of 320: num_batches_tracked is not stored
  EXPECT_EQ(graph.table.tensors.front().name, "conv1.weight");
  EXPECT_EQ(graph.table.tensors.back().name, "fc.bias");
  auto tensors = tensors_of(graph);
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(tensors["conv1.weight"].shape, (Sizes{64, 3, 7, 7}));
  EXPECT_EQ(tensors["bn1.running_var"].shape, Sizes{64});
  EXPECT_EQ(tensors["layer1.0.conv1.weight"].shape, (Sizes{64, 64, 1, 1}));
  EXPECT_EQ(tensors["layer1.0.downsample.0.weight"].shape, (Sizes{256, 64, 1, 1}));
  EXPECT_EQ(tensors["layer3.5.conv2.weight"].shape, (Sizes{256, 256, 3, 3}));
  EXPECT_EQ(tensors["layer4.2.bn3.running_mean"].shape, Sizes{2048});
  EXPECT_EQ(tensors["fc.weight"].shape, (Sizes{1000, 2048}));
  EXPECT_FALSE(tensors.contains("layer1.1.downsample.0.weight"));
  EXPECT_FALSE(tensors.contains("conv1.bias"));
}

TEST(Resnet, OnlyBiasesAndNormsHaveNoDecay) {
  const Graph graph =
      resnet18_graph(resnet_job("resnet18", "cifar", 2), image_fields({3, 32, 32}, 10));
  for (const TensorInfo& tensor : graph.table.tensors) {
    EXPECT_EQ(tensor.decay, tensor.shape.size() > 1) << tensor.name;
  }
}

TEST(Resnet, HasTheParametersOfTorchvision) {
  const auto trainable = [](const std::string& stem, int64_t channels, int64_t classes) {
    return resnet18_graph(resnet_job("resnet18", stem, 2),
                          image_fields({channels, 32, 32}, classes))
        .table.trainable();
  };
  EXPECT_EQ(trainable("imagenet", 3, 1000), 11'689'512);
  EXPECT_EQ(trainable("imagenet", 3, 10), 11'181'642);
  EXPECT_EQ(trainable("cifar", 1, 10), 11'172'810);
}

// The bottleneck's stride is in its 3x3 convolution: a stage's first 1x1 keeps the size.
TEST(Resnet, HalvesTheImageInEachStage) {
  for (const auto& [stem, sides] : {std::pair{"imagenet", std::vector<int64_t>{56, 28, 14, 7}},
                                    std::pair{"cifar", std::vector<int64_t>{224, 112, 56, 28}}}) {
    const Graph graph =
        resnet50_graph(resnet_job("resnet50", stem, 1), image_fields({3, 224, 224}, 10));
    std::map<std::string, int64_t> heights;
    for (const GraphNode& node : graph.nodes) {
      const ops::Shape& y = graph.values[static_cast<size_t>(node.output)].shape;
      if (y.rank() == 4) heights[node.name] = y[2];
    }
    EXPECT_EQ(heights["layer1.0.conv1"], sides[0]);
    EXPECT_EQ(heights["layer2.0.conv1"], sides[0]);
    EXPECT_EQ(heights["layer2.0.conv2"], sides[1]);
    EXPECT_EQ(heights["layer3.0.downsample.0"], sides[2]);
    EXPECT_EQ(heights["layer4.2.relu"], sides[3]);
  }
}

TEST(Resnet, DrawsConvolutionsFromTheNormalDistributionOfKaiming) {
  auto tensors = tensors_of(
      resnet18_graph(resnet_job("resnet18", "imagenet", 2), image_fields({3, 32, 32}, 10)));
  EXPECT_EQ(tensors["conv1.weight"].init, InitKind::kNormal);
  EXPECT_FLOAT_EQ(tensors["conv1.weight"].value, std::sqrt(2.0F / (64 * 7 * 7)));
  EXPECT_FLOAT_EQ(tensors["layer4.0.conv2.weight"].value, std::sqrt(2.0F / (512 * 3 * 3)));
  EXPECT_EQ(tensors["bn1.weight"].value, 1.0F);
  EXPECT_EQ(tensors["layer2.0.bn2.weight"].value, 1.0F);
  EXPECT_EQ(tensors["fc.weight"].init, InitKind::kUniform);
  EXPECT_FLOAT_EQ(tensors["fc.weight"].value, 1.0F / std::sqrt(512.0F));
}

// A stem with max pooling, a block whose input is added as it is, and one that projects it.
Graph small_graph(const Case& c) {
  GraphBuilder graph("small", "test", c.micro_batch, c.fields());
  const auto block = [&](const std::string& name, Value x, int64_t channels, int64_t stride) {
    Value y = convolution_without_bias(graph, name + ".conv1", x, channels, {3, stride, 1});
    y = batch_norm(graph, name + ".bn1", y, true);
    y = convolution_without_bias(graph, name + ".conv2", y, channels, {3, 1, 1});
    y = batch_norm(graph, name + ".bn2", y, false);
    if (stride != 1) {
      x = convolution_without_bias(graph, name + ".downsample.0", x, channels, {1, stride, 0});
      x = batch_norm(graph, name + ".downsample.1", x, false);
    }
    return activate(graph, name + ".relu", add(graph, name + ".add", y, x), ops::Function::kRelu);
  };
  Value x = convolution_without_bias(graph, "conv1", graph.input("pixels"), 4, {3, 1, 1});
  x = batch_norm(graph, "bn1", x, true);
  x = max_pool(graph, "maxpool", x, {3, 2, 1});
  x = block("layer1", x, 4, 1);
  x = block("layer2", x, 19, 2);  // not a multiple of the block of channels
  x = linear(graph, "fc", average_pool(graph, "avgpool", x), c.classes);
  graph.head({.name = "label"}, x, "label");
  return graph.take();
}

std::unique_ptr<Model> planned(Graph graph, int threads) {
  return std::make_unique<GraphModel>(
      std::make_unique<PlannedGraph>(ops::make_cpu_backend(threads), std::move(graph)), 1);
}

// Central differences, as in model_test.cpp.
TEST(Resnet, GradientsAreTheSlopeOfTheLoss) {
  const Case c{.input = {2, 9, 11}, .classes = 3, .micro_batch = 4};
  const Graph graph = small_graph(c);
  const reference::GraphLoss loss_of(graph);
  const auto model = planned(graph, 1);
  const std::vector<float> weights = initial_weights(model->table(), 3);
  const Inputs inputs(c, 5);
  const Result got = train(*model, weights, inputs);
  reference::Values flat(weights.begin(), weights.end());
  EXPECT_NEAR(got.loss, loss_of(flat, inputs.images, inputs.labels), 1e-5);
  for (const TensorInfo& info : graph.table.tensors) {
    if (info.rule != UpdateRule::kOptimizer) continue;
    const auto gradient =
        std::span(got.gradients)
            .subspan(static_cast<size_t>(info.offset), static_cast<size_t>(info.size));
    double largest = 0.0;
    for (const float g : gradient) largest = std::max(largest, std::fabs(double{g}));
    for (int64_t k = 0; k < std::min<int64_t>(info.size, 12); ++k) {
      const int64_t i = k * 7919 % info.size;
      double& weight = flat[static_cast<size_t>(info.offset + i)];
      const double saved = weight;
      constexpr double kStep = 1e-6;
      weight = saved + kStep;
      const double up = loss_of(flat, inputs.images, inputs.labels);
      weight = saved - kStep;
      const double down = loss_of(flat, inputs.images, inputs.labels);
      weight = saved;
      EXPECT_NEAR(gradient[static_cast<size_t>(i)], (up - down) / (2.0 * kStep),
                  1e-6 + 1e-4 * largest)
          << info.name << "[" << i << "]";
    }
  }
}

TEST(Resnet, TheLossIsThatOfPlainLoops) {
  for (const char* stem : {"cifar", "imagenet"}) {
    const Case c{.model = "resnet18", .input = {1, 8, 8}, .micro_batch = 8};
    const Graph graph = resnet18_graph(resnet_job("resnet18", stem, 8), c.fields());
    const auto model = planned(graph, 2);
    const std::vector<float> weights = initial_weights(model->table(), 3);
    const Inputs inputs(c, 5);
    const reference::Values flat(weights.begin(), weights.end());
    EXPECT_NEAR(train(*model, weights, inputs).loss,
                reference::GraphLoss(graph)(flat, inputs.images, inputs.labels), 1e-3);
  }
}

// A value that two operations read has the sum of both gradients; the last layer is first.
TEST(Resnet, ReportsEachFinalGradientOnceAndTheLastLayerFirst) {
  const Case c{.model = "resnet18", .input = {1, 8, 8}, .micro_batch = 4};
  const auto model = make_model(resnet_job("resnet18", "cifar", 4), c.fields());
  const std::vector<float> weights = initial_weights(model->table(), 1);
  const Inputs inputs(c);
  std::vector<float> gradients(weights.size(), std::numeric_limits<float>::quiet_NaN());
  std::vector<float> when_ready = gradients;
  std::vector<size_t> order;
  model->train(weights, inputs.view(), gradients, [&](size_t t) {
    order.push_back(t);
    const TensorInfo& info = model->table().tensors[t];
    std::copy_n(gradients.begin() + info.offset, info.size, when_ready.begin() + info.offset);
  });
  EXPECT_TRUE(when_ready == gradients);
  EXPECT_TRUE(std::ranges::all_of(gradients, [](float g) { return std::isfinite(g); }));
  std::vector<size_t> reversed;
  for (size_t t = model->table().tensors.size(); t-- > 0;) reversed.push_back(t);
  EXPECT_EQ(order, reversed);
}

TEST(Resnet, TwoStepsGiveTheSameBitsInAnotherModel) {
  const Case c{.model = "resnet18", .input = {1, 8, 8}, .micro_batch = 4};
  std::vector<std::vector<float>> ends;
  for (const bool evaluates : {false, true}) {
    const auto model = make_model(resnet_job("resnet18", "cifar", 4), c.fields());
    std::vector<float> weights = initial_weights(model->table(), 1);
    for (uint64_t step = 0; step < 2; ++step) {
      const Inputs inputs(c, step);
      const Result result = train(*model, weights, inputs);
      if (evaluates) evaluate(*model, weights, inputs, 3);
      EXPECT_TRUE(train(*model, weights, inputs) == result);
      for (size_t i = 0; i < weights.size(); ++i) weights[i] -= 0.01F * result.gradients[i];
    }
    ends.push_back(std::move(weights));
  }
  EXPECT_TRUE(ends[0] == ends[1]);
}

TEST(Resnet, HasTheSameBitsInTheOrderOfADevice) {
  Case c{.model = "resnet18", .input = {1, 8, 8}, .micro_batch = 4};
  const Job job = resnet_job("resnet18", "cifar", 4);
  const auto here = make_model(job, c.fields());
  const auto there = make_model_on(make_queued_backend(std::make_shared<device::FakeDevice>(), 1),
                                   job, c.fields());
  const std::vector<float> weights = initial_weights(here->table(), 1);
  const Inputs inputs(c, 3);
  EXPECT_TRUE(train(*there, weights, inputs) == train(*here, weights, inputs));
}

TEST(Resnet, OneValueInAChannelIsRefusedWithTheKeyToRaise) {
  const Case c{.model = "resnet18", .input = {1, 8, 8}, .micro_batch = 1};
  try {
    make_model(resnet_job("resnet18", "imagenet", 1), c.fields());
    FAIL() << "must be refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("layer2.0.bn1 has one value per channel"));
    EXPECT_THAT(error.what(), HasSubstr("raise micro-batch"));
  }
}

}  // namespace
}  // namespace pushpull
