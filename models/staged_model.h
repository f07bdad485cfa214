// A model divided into stages (models/stages.h), each planned on a backend of its own. As a Model it runs
// one stage after the other; a worker's pipeline runs them at once (worker/compute/pipeline_source.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/pipeline.h"
#include "models/planned_graph.h"

namespace pushpull {

class StagedModel final : public Model, public Pipeline {
 public:
  // stages: on the processor, in order. schedule: see stage_actions. seed: as GraphModel.
  StagedModel(std::vector<std::unique_ptr<PlannedGraph>> stages, std::string schedule,
              uint64_t seed);

  float train(std::span<const float> weights, const Samples& samples, std::span<float> gradients,
              const GradientReady& ready, const WeightsNeeded& needed = {}) override;
  void evaluate(std::span<const float> weights, const Samples& samples,
                std::span<HeadSums> sums) override;
  std::span<const float> scores() const override { return last().scores(); }
  size_t arena_bytes() const override;
  size_t slots() const override { return stages_.front()->slots(); }
  std::string numerics() const override;
  void choose(const std::string& /*choices*/) override {}
  Pipeline* pipeline() override { return this; }

  // ---- Pipeline ----
  size_t stages() const override { return stages_.size(); }
  std::vector<size_t> tensors(size_t stage) const override;
  int64_t layers(size_t stage) const override;
  size_t slots(size_t stage) const override { return stages_.at(stage)->slots(); }
  std::vector<StageAction> actions(size_t stage, int64_t micro_batches) const override;
  size_t boundary_floats(size_t stage) const override;
  std::unique_ptr<Batch> prepare(const Samples& samples) const override;
  void forward(size_t stage, const Pass& pass, const float* input, float* output,
               const WeightsNeeded& needed) override;
  void backward(size_t stage, const Pass& pass, const float* output_gradient, float* input_gradient,
                const GradientReady& ready) override;
  float loss(const Pass& pass) const override;

 private:
  PlannedGraph& last() const { return *stages_.back(); }
  PlannedGraph::Batch view(size_t stage, const Pass& pass) const;

  std::vector<std::unique_ptr<PlannedGraph>> stages_;
  const std::string schedule_;
  const uint64_t seed_;
  size_t random_nodes_ = 0;
};

}  // namespace pushpull
