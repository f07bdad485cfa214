// A stage of a model (models/stages.h), planned on a backend: a part of a StagedModel, or what a worker of
// a group computes. This file has what does not depend on the backend's memory; see host_stage.h and
// device_stage.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/pipeline.h"
#include "models/planned_graph.h"

namespace pushpull {

class PlannedStage : public PipelineStage {
 public:
  // Where a stage is among all, and the order in which they compute (see stage_actions).
  struct Place {
    std::string schedule;
    int64_t stages = 1;
    int64_t stage = 0;
  };

  std::vector<size_t> tensors() const override;
  int64_t layers() const override;
  size_t slots() const override { return graph_->slots(); }
  std::vector<StageAction> actions(int64_t micro_batches) const override;
  size_t input_floats() const override { return graph_->input_bytes() / sizeof(float); }
  size_t output_floats() const override { return graph_->output_bytes() / sizeof(float); }
  bool forward_writes() const override;
  std::unique_ptr<Batch> prepare(const Samples& samples) const override;

  const PlannedGraph& graph() const { return *graph_; }
  // Returns the table of the whole model.
  const TensorTable& table() const { return table_; }
  // Moves it to another place, whose schedule needs no more slots.
  void move(Place place) { place_ = std::move(place); }
  // Plans again with these algorithms (Model::choose). No micro-batch may be between forward and
  // backward.
  void choose(const std::string& choices) { graph_->choose(choices); }

 protected:
  // A micro-batch for this stage and those before it, in host memory.
  struct Prepared final : Batch {
    std::vector<float> block;
    std::vector<uint64_t> keys;        // of the random operations
    std::vector<double> denominators;  // of the heads
    std::vector<float> scales;
  };

  // table: of the whole model. seed: as GraphModel.
  PlannedStage(std::unique_ptr<PlannedGraph> graph, TensorTable table, Place place, uint64_t seed);

  PlannedGraph& planned() { return *graph_; }
  static const Prepared& prepared(const Pass& pass);
  // Returns the keys of this stage.
  std::span<const uint64_t> keys_of(const Prepared& batch) const;
  // losses: of a micro-batch, in host memory.
  float mean_loss(const float* losses, const Pass& pass) const;

 private:
  const std::unique_ptr<PlannedGraph> graph_;
  const TensorTable table_;
  Place place_;
  const uint64_t seed_;
};

// Plans a stage where its backend computes.
//   graph: of stage_graph. slots: see PlannedGraph.
// Throws as PlannedGraph does.
std::unique_ptr<PlannedStage> make_planned_stage(std::unique_ptr<ops::Backend> backend, Graph graph,
                                                 size_t slots, PlannedStage::Place place,
                                                 uint64_t seed);

}  // namespace pushpull
