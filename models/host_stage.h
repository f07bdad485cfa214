// A stage on the processor: its backend's memory is the host's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "models/planned_stage.h"

namespace pushpull {

class HostStage final : public PlannedStage {
 public:
  // See make_planned_stage.
  HostStage(std::unique_ptr<ops::Backend> backend, const Graph& graph, size_t slots, Place place,
            uint64_t seed);

  void forward(const Pass& pass, const float* input, float* output,
               const WeightsNeeded& needed) override;
  void backward(const Pass& pass, const float* output_gradient, float* input_gradient,
                const GradientReady& ready) override;
  float loss(const Pass& pass) const override;
  void evaluate(std::span<const float> weights, const Samples& samples, const float* input,
                float* output, std::span<HeadSums> sums) override;

 private:
  PlannedGraph::Batch view(const Pass& pass) const;
  void put_input(const float* input, size_t slot);
  void take_output(float* output, size_t slot) const;
};

}  // namespace pushpull
