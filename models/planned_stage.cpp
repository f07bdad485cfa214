#include "models/planned_stage.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/base/random.h"
#include "models/batch_results.h"
#include "models/device_stage.h"
#include "models/host_stage.h"
#include "models/stages.h"

namespace pushpull {

PlannedStage::PlannedStage(std::unique_ptr<PlannedGraph> graph, TensorTable table, Place place,
                           uint64_t seed)
    : graph_(std::move(graph)), table_(std::move(table)), place_(std::move(place)), seed_(seed) {}

std::vector<size_t> PlannedStage::tensors() const { return own_tensors(graph_->graph()); }

int64_t PlannedStage::layers() const { return cost_of(graph_->graph()).layers; }

std::vector<StageAction> PlannedStage::actions(int64_t micro_batches) const {
  const int64_t wanted = stage_slots(place_.schedule, place_.stages, place_.stage, micro_batches);
  PP_ASSERT(wanted <= static_cast<int64_t>(slots()));
  return stage_actions(place_.schedule, place_.stages, place_.stage, micro_batches);
}

bool PlannedStage::forward_writes() const {
  return std::ranges::any_of(tensors(), [this](size_t tensor) {
    return table_.tensors[tensor].rule == UpdateRule::kAverage;
  });
}

std::unique_ptr<PipelineStage::Batch> PlannedStage::prepare(const Samples& samples) const {
  const Graph& graph = graph_->graph();
  check_samples(graph, graph_->layout(), samples, graph.samples);
  auto out = std::make_unique<Prepared>();
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

const PlannedStage::Prepared& PlannedStage::prepared(const Pass& pass) {
  return static_cast<const Prepared&>(*pass.batch);
}

std::span<const uint64_t> PlannedStage::keys_of(const Prepared& batch) const {
  return std::span(batch.keys).subspan(graph_->graph().edges.random_nodes, graph_->random_nodes());
}

float PlannedStage::mean_loss(const float* losses, const Pass& pass) const {
  return batch_loss(graph_->graph(), {losses, graph_->result_words()}, prepared(pass).denominators);
}

std::unique_ptr<PlannedStage> make_planned_stage(std::unique_ptr<ops::Backend> backend, Graph graph,
                                                 size_t slots, PlannedStage::Place place,
                                                 uint64_t seed) {
  if (backend->device() != nullptr) {
    return std::make_unique<DeviceStage>(std::move(backend), graph, slots, std::move(place), seed);
  }
  return std::make_unique<HostStage>(std::move(backend), graph, slots, std::move(place), seed);
}

}  // namespace pushpull
