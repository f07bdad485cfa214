#include "models/staged_model.h"

#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/base/random.h"
#include "models/batch_results.h"
#include "models/stages.h"

namespace pushpull {

namespace {

struct StagedBatch final : Pipeline::Batch {
  std::vector<float> block;
  std::vector<uint64_t> keys;        // of the random operations of all stages
  std::vector<double> denominators;  // of the heads
  std::vector<float> scales;
};

const StagedBatch& batch_of(const Pipeline::Pass& pass) {
  return static_cast<const StagedBatch&>(*pass.batch);
}

}  // namespace

StagedModel::StagedModel(std::vector<std::unique_ptr<PlannedGraph>> stages, std::string schedule,
                         uint64_t seed)
    : stages_(std::move(stages)), schedule_(std::move(schedule)), seed_(seed) {
  table_ = last().table();
  heads_ = head_infos(last().graph());
  for (const auto& stage : stages_) random_nodes_ += stage->random_nodes();
}

size_t StagedModel::arena_bytes() const {
  size_t bytes = 0;
  for (const auto& stage : stages_) bytes += stage->arena_bytes();
  return bytes;
}

std::string StagedModel::numerics() const {
  const ops::Backend::Scope scope(last().backend());
  return last().backend().numerics();
}

// ---- Pipeline ----

std::vector<size_t> StagedModel::tensors(size_t stage) const {
  return own_tensors(stages_.at(stage)->graph());
}

int64_t StagedModel::layers(size_t stage) const {
  return cost_of(stages_.at(stage)->graph()).layers;
}

std::vector<StageAction> StagedModel::actions(size_t stage, int64_t micro_batches) const {
  return stage_actions(schedule_, std::ssize(stages_), static_cast<int64_t>(stage), micro_batches);
}

size_t StagedModel::boundary_floats(size_t stage) const {
  return stages_.at(stage)->output_bytes() / sizeof(float);
}

std::unique_ptr<Pipeline::Batch> StagedModel::prepare(const Samples& samples) const {
  const Graph& graph = last().graph();
  check_samples(graph, last().layout(), samples, graph.samples);
  auto out = std::make_unique<StagedBatch>();
  out->block.assign(samples.block.begin(), samples.block.end());
  for (size_t i = 0; i < random_nodes_; ++i) {
    out->keys.push_back(
        random_key(seed_, samples.step, samples.micro_batch, static_cast<uint32_t>(i)));
  }
  for (size_t h = 0; h < heads_.size(); ++h) {
    out->denominators.push_back(denominator_of(graph, h, last().layout(), samples));
    out->scales.push_back(scale_of(graph.heads[h], out->denominators[h]));
  }
  return out;
}

PlannedGraph::Batch StagedModel::view(size_t stage, const Pass& pass) const {
  const StagedBatch& batch = batch_of(pass);
  return {.weights = pass.weights,
          .block = batch.block.data(),
          .keys = batch.keys.data() + stages_.at(stage)->graph().edges.random_nodes,
          .scales = batch.scales.data(),
          .gradients = pass.gradients,
          .slot = pass.slot};
}

void StagedModel::forward(size_t stage, const Pass& pass, const float* input, float* output,
                          const WeightsNeeded& needed) {
  PlannedGraph& graph = *stages_.at(stage);
  if (input != nullptr) std::memcpy(graph.input(pass.slot), input, graph.input_bytes());
  graph.forward(view(stage, pass), needed);
  if (output != nullptr) std::memcpy(output, graph.output(pass.slot), graph.output_bytes());
}

void StagedModel::backward(size_t stage, const Pass& pass, const float* output_gradient,
                           float* input_gradient, const GradientReady& ready) {
  PlannedGraph& graph = *stages_.at(stage);
  if (output_gradient != nullptr) {
    std::memcpy(graph.output_gradient(pass.slot), output_gradient, graph.output_bytes());
  }
  graph.backward(view(stage, pass), ready);
  if (input_gradient != nullptr) {
    std::memcpy(input_gradient, graph.input_gradient(pass.slot), graph.input_bytes());
  }
}

float StagedModel::loss(const Pass& pass) const {
  return batch_loss(last().graph(), {last().losses(pass.slot), last().result_words()},
                    batch_of(pass).denominators);
}

// ---- Model ----

float StagedModel::train(std::span<const float> weights, const Samples& samples,
                         std::span<float> gradients, const GradientReady& ready,
                         const WeightsNeeded& needed) {
  const std::unique_ptr<Batch> batch = prepare(samples);
  const Pass pass{weights, gradients, batch.get(), 0};
  std::vector<std::vector<float>> between;
  for (size_t s = 0; s < stages_.size(); ++s) {
    const float* const input = s == 0 ? nullptr : between.back().data();
    std::vector<float> output(boundary_floats(s));
    forward(s, pass, input, output.empty() ? nullptr : output.data(), needed);
    between.push_back(std::move(output));
  }
  std::vector<float> gradient;
  for (size_t s = stages_.size(); s-- > 0;) {
    std::vector<float> next(s == 0 ? 0 : boundary_floats(s - 1));
    backward(s, pass, gradient.empty() ? nullptr : gradient.data(),
             next.empty() ? nullptr : next.data(), ready);
    gradient = std::move(next);
  }
  return loss(pass);
}

void StagedModel::evaluate(std::span<const float> weights, const Samples& samples,
                           std::span<HeadSums> sums) {
  PP_ASSERT(sums.size() == heads_.size());
  const int64_t valid = std::ssize(samples.indices);
  check_samples(last().graph(), last().layout(), samples, valid);
  for (size_t s = 0; s < stages_.size(); ++s) {
    stages_[s]->evaluate(weights, samples.block.data(), valid);
    if (s + 1 == stages_.size()) break;
    std::memcpy(stages_[s + 1]->input(), stages_[s]->output(), stages_[s]->output_bytes());
  }
  const size_t words = last().result_words();
  batch_sums(last().graph(), last().layout(), samples, {last().losses(), words},
             {last().predictions(), words}, sums);
}

}  // namespace pushpull
