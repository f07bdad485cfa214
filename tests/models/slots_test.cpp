// Two micro-batches of one planned graph between forward and backward, each in its slot.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "common/job/job.h"
#include "models/models.h"
#include "models/planned_graph.h"
#include "tests/models/random_block.h"

namespace pushpull {
namespace {

using Gradients = std::array<std::vector<float>, 2>;

using Blocks = std::array<std::vector<float>, 2>;

// Returns the gradients of two micro-batches.
//   interleaved: forward of both, each in its slot, before backward of both.
Gradients gradients_of(PlannedGraph& graph, const Blocks& blocks, bool interleaved) {
  const auto total = static_cast<size_t>(graph.table().total);
  std::vector<float> weights(total);
  for (size_t i = 0; i < total; ++i) weights[i] = 0.3F * std::sin(static_cast<float>(i));
  const std::vector<uint64_t> keys(2 * graph.random_nodes() + 2, 7);
  const std::array<float, 2> scales{0.25F, 0.5F};
  Gradients gradients;
  for (std::vector<float>& one : gradients) one.assign(total, std::nanf(""));
  const std::function<void(size_t)> ready = [](size_t) {};
  const auto batch = [&](size_t i) {
    return PlannedGraph::Batch{.weights = weights,
                               .block = blocks.at(i).data(),
                               .keys = keys.data(),
                               .scales = &scales.at(i),
                               .gradients = gradients.at(i),
                               .slot = interleaved ? i : 0};
  };
  if (interleaved) {
    for (const size_t i : {0, 1}) graph.forward(batch(i), {});
    for (const size_t i : {0, 1}) graph.backward(batch(i), ready);
  } else {
    for (const size_t i : {0, 1}) graph.train(batch(i), ready, {});
  }
  return gradients;
}

void expect_same_bits(Graph description) {
  std::mt19937 random(3);
  const Blocks blocks{random_block(description, random), random_block(description, random)};
  PlannedGraph graph(ops::make_cpu_backend(1), std::move(description), 2);
  const Gradients apart = gradients_of(graph, blocks, false);
  EXPECT_EQ(gradients_of(graph, blocks, true), apart);
  EXPECT_NE(apart[0], apart[1]);
}

TEST(Slots, TwoMicroBatchesInFlightGiveTheBitsOfOneAtATime) {
  Job job;
  job.micro_batch = 3;
  job.embed = 8;
  job.layers = 2;
  job.heads = 2;
  job.dropout = 0.25;
  job.attention_dropout = 0.25;
  expect_same_bits(gpt_graph(job, token_fields(6, 11)));
  expect_same_bits(mlp_graph(job, image_fields({1, 4, 4}, 5)));
  expect_same_bits(convnet_graph(job, image_fields({1, 8, 8}, 5)));
  job.stem = "imagenet";
  expect_same_bits(resnet18_graph(job, image_fields({1, 32, 32}, 5)));
}

}  // namespace
}  // namespace pushpull
