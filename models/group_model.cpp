#include "models/group_model.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "models/stages.h"

namespace pushpull {

GroupModel::GroupModel(Graph graph, std::vector<Range> nodes, MakeBackend backend,
                       std::string schedule, uint64_t seed)
    : graph_(std::move(graph)),
      nodes_(std::move(nodes)),
      backend_(std::move(backend)),
      schedule_(std::move(schedule)),
      seed_(seed),
      read_(tensors_read_by(graph_, nodes_)) {
  mark_stages(graph_.table, read_);
  table_ = graph_.table;
  heads_ = head_infos(graph_);
  const std::unique_ptr<ops::Backend> described = backend_();
  const ops::Backend::Scope scope(*described);
  numerics_ = described->numerics();
  is_on_device_ = described->device() != nullptr;
  for (size_t s = 0; s + 1 < nodes_.size(); ++s) {
    const Graph stage = stage_graph(graph_, nodes_, s);
    const ops::ValueType& output = stage.values[static_cast<size_t>(stage.edges.output)];
    boundary_floats_ = std::max(boundary_floats_, ops::floats_of(*described, output));
    if (output.layout == ops::Layout::kNative) passes_images_ = true;
  }
}

float GroupModel::train(std::span<const float> /*weights*/, const Samples& /*samples*/,
                        std::span<float> /*gradients*/, const GradientReady& /*ready*/,
                        const WeightsNeeded& /*needed*/) {
  PP_ASSERT(false);
  return 0.0F;
}

void GroupModel::evaluate(std::span<const float> /*weights*/, const Samples& /*samples*/,
                          std::span<HeadSums> /*sums*/) {
  PP_ASSERT(false);
}

void GroupModel::choose(const std::string& choices) {
  if (choices.empty() || choices == choices_) return;
  choices_ = choices;
  if (planned_) planned_->choose(choices);
}

void GroupModel::take_stage(int stage, int64_t micro_batches) {
  PP_ASSERT(stage >= 0 && stage < stages());
  const auto slots = static_cast<size_t>(stage_slots(schedule_, stages(), stage, micro_batches));
  if (stage == stage_ && planned_->slots() >= slots) return;
  planned_.reset();  // its arena goes before the next one comes
  stage_ = -1;
  std::unique_ptr<ops::Backend> backend = backend_();
  if (!choices_.empty()) backend->choose(choices_);
  planned_ = make_planned_stage(std::move(backend),
                                stage_graph(graph_, nodes_, static_cast<size_t>(stage)), slots,
                                {schedule_, stages(), stage}, seed_);
  stage_ = stage;
}

PipelineStage& GroupModel::planned() {
  PP_ASSERT(planned_ != nullptr);
  return *planned_;
}

}  // namespace pushpull
