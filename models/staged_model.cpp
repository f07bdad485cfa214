#include "models/staged_model.h"

#include <utility>

#include "common/base/error.h"
#include "common/device/device_name.h"
#include "models/ops/choices.h"

namespace pushpull {

namespace {

float* floats_or_null(std::vector<float>& floats) {
  return floats.empty() ? nullptr : floats.data();
}

std::string numerics_of(const PlannedGraph& graph) {
  const ops::Backend::Scope scope(graph.backend());
  return graph.backend().numerics();
}

}  // namespace

StagedModel::StagedModel(std::vector<std::unique_ptr<PlannedStage>> stages)
    : stages_(std::move(stages)) {
  table_ = last().table();
  heads_ = head_infos(last().graph().graph());
  for (const auto& stage : stages_)
    device::check_same_kind(numerics(), numerics_of(stage->graph()));
}

size_t StagedModel::arena_bytes() const {
  size_t bytes = 0;
  for (const auto& stage : stages_) bytes += stage->graph().arena_bytes();
  return bytes;
}

std::string StagedModel::numerics() const { return numerics_of(stages_.front()->graph()); }

std::string StagedModel::choices() const {
  ops::Choices all;
  for (const auto& stage : stages_) {
    all.add(ops::Choices::parse(stage->graph().backend().choices()));
  }
  return all.text();
}

void StagedModel::choose(const std::string& choices) {
  if (choices.empty() || choices == this->choices()) return;
  for (const auto& stage : stages_) stage->choose(choices);
}

float StagedModel::train(std::span<const float> weights, const Samples& samples,
                         std::span<float> gradients, const GradientReady& ready,
                         const WeightsNeeded& needed) {
  const std::unique_ptr<PipelineStage::Batch> batch = last().prepare(samples);
  const PipelineStage::Pass pass{weights, gradients, batch.get(), 0};
  for (const auto& stage : stages_) stage->new_weights();
  std::vector<float> between;
  for (const auto& stage : stages_) {
    std::vector<float> output(stage->output_floats());
    stage->forward(pass, floats_or_null(between), floats_or_null(output), needed);
    between = std::move(output);
  }
  for (size_t s = stages_.size(); s-- > 0;) {
    std::vector<float> input(stages_[s]->input_floats());
    stages_[s]->backward(pass, floats_or_null(between), floats_or_null(input), ready);
    between = std::move(input);
  }
  return last().loss(pass);
}

void StagedModel::evaluate(std::span<const float> weights, const Samples& samples,
                           std::span<HeadSums> sums) {
  PP_ASSERT(sums.size() == heads_.size());
  std::vector<PipelineStage*> stages;
  for (const auto& stage : stages_) stages.push_back(stage.get());
  evaluate_stages(stages, weights, samples, nullptr, nullptr, sums);
}

}  // namespace pushpull
