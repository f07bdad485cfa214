// A graph as a Model: the caller's memory is on the host, and calls return when the work is done.
// Not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/device_step.h"
#include "models/model.h"
#include "models/planned_graph.h"

namespace pushpull {

class GraphModel final : public Model {
 public:
  // seed: of the random operations (the job's).
  GraphModel(std::unique_ptr<PlannedGraph> graph, uint64_t seed);

  float train(std::span<const float> weights, const Samples& samples, std::span<float> gradients,
              const GradientReady& ready, const WeightsNeeded& needed = {}) override;
  void evaluate(std::span<const float> weights, const Samples& samples,
                std::span<HeadSums> sums) override;
  std::span<const float> scores() const override { return graph_->scores(); }
  double gradient_bound(size_t tensor) const override { return graph_->gradient_bound(tensor); }
  size_t arena_bytes() const override { return graph_->arena_bytes(); }
  size_t slots() const override { return graph_->slots(); }
  DeviceStep* device_step() override;
  std::string numerics() const override;
  std::string choices() const override;
  void choose(const std::string& choices) override;

  PlannedGraph& graph() { return *graph_; }

 private:
  // Device copies of the caller's host memory; created on first use.
  struct Copies {
    ops::Buffer weights;
    ops::Buffer gradients;
    ops::Buffer block;
  };
  Copies& copies();
  float train_on_device(std::span<const float> weights, const Samples& samples,
                        std::span<float> gradients, const GradientReady& ready,
                        const WeightsNeeded& needed);
  void evaluate_on_device(std::span<const float> weights, const Samples& samples);

  std::unique_ptr<PlannedGraph> graph_;  // outlives the members below
  std::unique_ptr<DeviceStep> step_;
  Copies copies_;
  const uint64_t seed_;
  std::vector<uint64_t> keys_;        // of random operations in the current micro-batch
  std::vector<double> denominators_;  // of heads
  std::vector<float> scales_;         // of heads
  std::vector<float> losses_;         // host copies of results on a device
  std::vector<int32_t> predictions_;
};

// Creates the model that the job names on the given backend, see make_model.
std::unique_ptr<Model> make_model_on(std::unique_ptr<ops::Backend> backend, const Job& job,
                                     const FieldTable& fields);

}  // namespace pushpull
