// A stage of a model (models/stages.h), planned on the processor: a part of a StagedModel, or what a
// worker of a group computes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/pipeline.h"
#include "models/planned_graph.h"

namespace pushpull {

class PlannedStage final : public PipelineStage {
 public:
  // Where a stage is among all, and the order in which they compute (see stage_actions).
  struct Place {
    std::string schedule;
    int64_t stages = 1;
    int64_t stage = 0;
  };
  // graph: of stage_graph. seed: as GraphModel.
  PlannedStage(std::unique_ptr<PlannedGraph> graph, Place place, uint64_t seed);

  std::vector<size_t> tensors() const override;
  int64_t layers() const override;
  size_t slots() const override { return graph_->slots(); }
  std::vector<StageAction> actions(int64_t micro_batches) const override;
  size_t input_floats() const override { return graph_->input_bytes() / sizeof(float); }
  size_t output_floats() const override { return graph_->output_bytes() / sizeof(float); }
  bool forward_writes() const override;
  std::unique_ptr<Batch> prepare(const Samples& samples) const override;
  void forward(const Pass& pass, const float* input, float* output,
               const WeightsNeeded& needed) override;
  void backward(const Pass& pass, const float* output_gradient, float* input_gradient,
                const GradientReady& ready) override;
  float loss(const Pass& pass) const override;
  void evaluate(std::span<const float> weights, const Samples& samples, const float* input,
                float* output, std::span<HeadSums> sums) override;

  const PlannedGraph& graph() const { return *graph_; }

 private:
  PlannedGraph::Batch view(const Pass& pass) const;
  void put_input(const float* input, size_t slot);
  void take_output(float* output, size_t slot) const;

  const std::unique_ptr<PlannedGraph> graph_;
  const Place place_;
  const uint64_t seed_;
};

}  // namespace pushpull
