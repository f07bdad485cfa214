// A model that a group of workers divides (models/stages.h). When made it only describes the whole model;
// a worker plans the one stage that it computes. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/layout/fixed_tree.h"
#include "models/graph.h"
#include "models/model.h"
#include "models/pipeline.h"
#include "models/planned_stage.h"

namespace pushpull {

class GroupModel final : public Model, public GroupStage {
 public:
  // Makes a backend on the processor, for a stage.
  using MakeBackend = std::function<std::unique_ptr<ops::Backend>()>;
  // nodes: of stage_nodes. schedule: see stage_actions. seed: as GraphModel.
  // Throws as mark_stages does.
  GroupModel(Graph graph, std::vector<Range> nodes, MakeBackend backend, std::string schedule,
             uint64_t seed);

  // ---- Model ----
  // A stage alone computes neither: see PipelineStage.
  float train(std::span<const float> weights, const Samples& samples, std::span<float> gradients,
              const GradientReady& ready, const WeightsNeeded& needed = {}) override;
  void evaluate(std::span<const float> weights, const Samples& samples,
                std::span<HeadSums> sums) override;
  // Of the stage; 0 before take_stage.
  size_t arena_bytes() const override { return planned_ ? planned_->graph().arena_bytes() : 0; }
  size_t slots() const override { return planned_ ? planned_->slots() : 0; }
  std::string numerics() const override { return numerics_; }
  void choose(const std::string& /*choices*/) override {}
  GroupStage* group_stage() override { return this; }

  // ---- GroupStage ----
  int stages() const override { return static_cast<int>(nodes_.size()); }
  const std::vector<std::vector<size_t>>& tensors_read() const override { return read_; }
  size_t boundary_floats() const override { return boundary_floats_; }
  void take_stage(int stage, int64_t micro_batches) override;
  int stage() const override { return stage_; }
  PipelineStage& planned() override;

 private:
  Graph graph_;
  const std::vector<Range> nodes_;
  const MakeBackend backend_;
  const std::string schedule_;
  const uint64_t seed_;
  std::string numerics_;
  std::vector<std::vector<size_t>> read_;  // tensors, by stage
  size_t boundary_floats_ = 0;
  int stage_ = -1;
  std::optional<PlannedStage> planned_;
};

}  // namespace pushpull
