// A model divided into stages (models/stages.h), each planned on a backend of its own. As a Model it runs
// one stage after the other; a worker's pipeline runs them at once (worker/compute/pipeline_source.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/pipeline.h"
#include "models/planned_stage.h"

namespace pushpull {

class StagedModel final : public Model, public Pipeline {
 public:
  // stages: all, in order; on the processor, or on devices of one kind.
  // Throws Error(kUsage) if their numerics differ.
  explicit StagedModel(std::vector<std::unique_ptr<PlannedStage>> stages);

  float train(std::span<const float> weights, const Samples& samples, std::span<float> gradients,
              const GradientReady& ready, const WeightsNeeded& needed = {}) override;
  void evaluate(std::span<const float> weights, const Samples& samples,
                std::span<HeadSums> sums) override;
  std::span<const float> scores() const override { return last().graph().scores(); }
  size_t arena_bytes() const override;
  size_t slots() const override { return stages_.front()->slots(); }
  std::string numerics() const override;
  // Those of all stages.
  std::string choices() const override;
  void choose(const std::string& choices) override;
  Pipeline* pipeline() override { return this; }

  size_t stages() const override { return stages_.size(); }
  PipelineStage& stage(size_t index) override { return *stages_.at(index); }
  std::shared_ptr<device::Device> device() const override {
    return last().graph().backend().device();
  }

 private:
  const PlannedStage& last() const { return *stages_.back(); }

  std::vector<std::unique_ptr<PlannedStage>> stages_;
};

// Creates the model of make_staged_model on these backends.
//   backend: makes that of a stage.
std::unique_ptr<Model> make_staged_model_on(
    const std::function<std::unique_ptr<ops::Backend>(int64_t stage)>& backend, const Job& job,
    const FieldTable& fields, int64_t stages);

}  // namespace pushpull
