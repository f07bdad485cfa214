#include "models/host_stage.h"

#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "models/batch_results.h"

namespace pushpull {

HostStage::HostStage(std::unique_ptr<ops::Backend> backend, const Graph& graph, size_t slots,
                     Place place, uint64_t seed)
    : PlannedStage(std::make_unique<PlannedGraph>(std::move(backend), graph, slots), graph.table,
                   std::move(place), seed) {}

PlannedGraph::Batch HostStage::view(const Pass& pass) const {
  const Prepared& batch = prepared(pass);
  return {.weights = pass.weights,
          .block = batch.block.data(),
          .keys = keys_of(batch).data(),
          .scales = batch.scales.data(),
          .gradients = pass.gradients,
          .slot = pass.slot};
}

void HostStage::put_input(const float* input, size_t slot) {
  if (input != nullptr) std::memcpy(graph().input(slot), input, graph().input_bytes());
}

void HostStage::take_output(float* output, size_t slot) const {
  if (output != nullptr) std::memcpy(output, graph().output(slot), graph().output_bytes());
}

void HostStage::forward(const Pass& pass, const float* input, float* output,
                        const WeightsNeeded& needed) {
  put_input(input, pass.slot);
  planned().forward(view(pass), needed);
  take_output(output, pass.slot);
}

void HostStage::backward(const Pass& pass, const float* output_gradient, float* input_gradient,
                         const GradientReady& ready) {
  if (output_gradient != nullptr) {
    std::memcpy(graph().output_gradient(pass.slot), output_gradient, graph().output_bytes());
  }
  planned().backward(view(pass), ready);
  if (input_gradient != nullptr) {
    std::memcpy(input_gradient, graph().input_gradient(pass.slot), graph().input_bytes());
  }
}

float HostStage::loss(const Pass& pass) const { return mean_loss(graph().losses(pass.slot), pass); }

void HostStage::evaluate(std::span<const float> weights, const Samples& samples, const float* input,
                         float* output, std::span<HeadSums> sums) {
  const Graph& description = graph().graph();
  PP_ASSERT(sums.size() == description.heads.size());
  const int64_t valid = std::ssize(samples.indices);
  check_samples(description, graph().layout(), samples, valid);
  put_input(input, 0);
  planned().evaluate(weights, samples.block.data(), valid);
  take_output(output, 0);
  const size_t words = graph().result_words();
  batch_sums(description, graph().layout(), samples, {graph().losses(), words},
             {graph().predictions(), words}, sums);
}

}  // namespace pushpull
