// A model that a group of workers divides (models/stages.h). When made it only describes the whole model;
// a worker plans the one stage that it computes, divided again into local stages. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/layout/fixed_tree.h"
#include "models/graph.h"
#include "models/model.h"
#include "models/pipeline.h"
#include "models/planned_stage.h"
#include "models/stages.h"

namespace pushpull {

// How a worker divides the stage that it computes.
struct LocalStages {
  int64_t count = 1;
  Balance balance = {};
};

class GroupModel final : public Model, public GroupStage {
 public:
  // Makes the backend of a local stage; called again for another stage.
  using MakeBackend = std::function<std::unique_ptr<ops::Backend>(int64_t local_stage)>;
  // nodes: of stage_nodes. schedule: see stage_actions. seed: as GraphModel.
  // Throws as mark_stages does; Error(kUsage) if a stage has fewer pieces than `local` stages, or if the
  // numerics of the backends differ.
  GroupModel(Graph graph, std::vector<Range> nodes, MakeBackend backend, std::string schedule,
             uint64_t seed, LocalStages local = {});

  // ---- Model ----
  // A stage alone computes neither: see PipelineStage.
  float train(std::span<const float> weights, const Samples& samples, std::span<float> gradients,
              const GradientReady& ready, const WeightsNeeded& needed = {}) override;
  void evaluate(std::span<const float> weights, const Samples& samples,
                std::span<HeadSums> sums) override;
  // Returns the bytes of all local stages; 0 before take_stage.
  size_t arena_bytes() const override;
  size_t slots() const override { return planned_.empty() ? 0 : planned_.front()->slots(); }
  std::string numerics() const override { return numerics_; }
  // Those that were chosen for it: a stage alone has not all.
  std::string choices() const override { return choices_; }
  void choose(const std::string& choices) override;
  GroupStage* group_stage() override { return this; }

  bool is_on_device() const { return is_on_device_; }
  // Returns whether an image passes from one stage to another, in the layout of a backend.
  bool passes_images() const { return passes_images_; }

  // ---- GroupStage ----
  int stages() const override { return static_cast<int>(nodes_.size()); }
  const std::vector<std::vector<size_t>>& tensors_read() const override { return read_; }
  size_t boundary_floats() const override { return boundary_floats_; }
  int local_stages() const override { return static_cast<int>(local_.count); }
  void take_stage(int stage, const std::vector<int>& local_stages, int64_t micro_batches) override;
  int stage() const override { return stage_; }
  int first_local() const override { return static_cast<int>(first_local_); }
  std::vector<PipelineStage*> planned() override;

 private:
  Graph graph_;
  const std::vector<Range> nodes_;
  const MakeBackend backend_;
  const std::string schedule_;
  const uint64_t seed_;
  const LocalStages local_;
  std::string numerics_;
  std::string choices_;
  std::vector<std::vector<size_t>> read_;  // tensors, by stage
  size_t boundary_floats_ = 0;
  bool is_on_device_ = false;
  bool passes_images_ = false;
  int stage_ = -1;
  int64_t first_local_ = -1;
  int64_t micro_batches_ = 0;                           // the most of a node so far, in this stage
  std::vector<std::unique_ptr<PlannedStage>> planned_;  // local stages
};

// Creates the model of make_group_model on these backends.
std::unique_ptr<Model> make_group_model_on(GroupModel::MakeBackend backend, const Job& job,
                                           const FieldTable& fields, int64_t local_stages = 1);

}  // namespace pushpull
