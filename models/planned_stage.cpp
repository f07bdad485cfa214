#include "models/planned_stage.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/base/random.h"
#include "models/batch_results.h"
#include "models/stages.h"

namespace pushpull {

namespace {

struct PlannedBatch final : PipelineStage::Batch {
  std::vector<float> block;
  std::vector<uint64_t> keys;        // of the random operations of this stage and those before
  std::vector<double> denominators;  // of the heads
  std::vector<float> scales;
};

const PlannedBatch& batch_of(const PipelineStage::Pass& pass) {
  return static_cast<const PlannedBatch&>(*pass.batch);
}

}  // namespace

PlannedStage::PlannedStage(std::unique_ptr<PlannedGraph> graph, Place place, uint64_t seed)
    : graph_(std::move(graph)), place_(std::move(place)), seed_(seed) {}

std::vector<size_t> PlannedStage::tensors() const { return own_tensors(graph_->graph()); }

int64_t PlannedStage::layers() const { return cost_of(graph_->graph()).layers; }

std::vector<StageAction> PlannedStage::actions(int64_t micro_batches) const {
  const int64_t wanted = stage_slots(place_.schedule, place_.stages, place_.stage, micro_batches);
  PP_ASSERT(wanted <= static_cast<int64_t>(slots()));
  return stage_actions(place_.schedule, place_.stages, place_.stage, micro_batches);
}

bool PlannedStage::forward_writes() const {
  return std::ranges::any_of(tensors(), [this](size_t tensor) {
    return graph_->table().tensors[tensor].rule == UpdateRule::kAverage;
  });
}

std::unique_ptr<PipelineStage::Batch> PlannedStage::prepare(const Samples& samples) const {
  const Graph& graph = graph_->graph();
  check_samples(graph, graph_->layout(), samples, graph.samples);
  auto out = std::make_unique<PlannedBatch>();
  out->block.assign(samples.block.begin(), samples.block.end());
  const size_t keys = graph.edges.random_nodes + graph_->random_nodes();
  for (size_t i = 0; i < keys; ++i) {
    out->keys.push_back(
        random_key(seed_, samples.step, samples.micro_batch, static_cast<uint32_t>(i)));
  }
  for (size_t h = 0; h < graph.heads.size(); ++h) {
    out->denominators.push_back(denominator_of(graph, h, graph_->layout(), samples));
    out->scales.push_back(scale_of(graph.heads[h], out->denominators[h]));
  }
  return out;
}

PlannedGraph::Batch PlannedStage::view(const Pass& pass) const {
  const PlannedBatch& batch = batch_of(pass);
  return {.weights = pass.weights,
          .block = batch.block.data(),
          .keys = batch.keys.data() + graph_->graph().edges.random_nodes,
          .scales = batch.scales.data(),
          .gradients = pass.gradients,
          .slot = pass.slot};
}

void PlannedStage::put_input(const float* input, size_t slot) {
  if (input != nullptr) std::memcpy(graph_->input(slot), input, graph_->input_bytes());
}

void PlannedStage::take_output(float* output, size_t slot) const {
  if (output != nullptr) std::memcpy(output, graph_->output(slot), graph_->output_bytes());
}

void PlannedStage::forward(const Pass& pass, const float* input, float* output,
                           const WeightsNeeded& needed) {
  put_input(input, pass.slot);
  graph_->forward(view(pass), needed);
  take_output(output, pass.slot);
}

void PlannedStage::backward(const Pass& pass, const float* output_gradient, float* input_gradient,
                            const GradientReady& ready) {
  if (output_gradient != nullptr) {
    std::memcpy(graph_->output_gradient(pass.slot), output_gradient, graph_->output_bytes());
  }
  graph_->backward(view(pass), ready);
  if (input_gradient != nullptr) {
    std::memcpy(input_gradient, graph_->input_gradient(pass.slot), graph_->input_bytes());
  }
}

float PlannedStage::loss(const Pass& pass) const {
  return batch_loss(graph_->graph(), {graph_->losses(pass.slot), graph_->result_words()},
                    batch_of(pass).denominators);
}

void PlannedStage::evaluate(std::span<const float> weights, const Samples& samples,
                            const float* input, float* output, std::span<HeadSums> sums) {
  const Graph& graph = graph_->graph();
  PP_ASSERT(sums.size() == graph.heads.size());
  const int64_t valid = std::ssize(samples.indices);
  check_samples(graph, graph_->layout(), samples, valid);
  put_input(input, 0);
  graph_->evaluate(weights, samples.block.data(), valid);
  take_output(output, 0);
  const size_t words = graph_->result_words();
  batch_sums(graph, graph_->layout(), samples, {graph_->losses(), words},
             {graph_->predictions(), words}, sums);
}

}  // namespace pushpull
