#include "models/group_model.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/device/device_name.h"

namespace pushpull {

namespace {

// A worker may get any stage.
void check_pieces(const Graph& graph, const std::vector<Range>& nodes, int64_t local_stages) {
  const std::vector<int64_t> pieces = pieces_in(graph, nodes);
  const auto fewest = std::ranges::min_element(pieces);
  if (local_stages <= *fewest) return;
  throw Error(ErrorCode::kUsage,
              "[stages] --stages " + std::to_string(local_stages) + ": stage " +
                  std::to_string(fewest - pieces.begin()) + " of the job's " +
                  std::to_string(nodes.size()) + " has " + plural(*fewest, "piece") +
                  ", and a worker may get any of them: choose 1 to " + std::to_string(*fewest));
}

}  // namespace

GroupModel::GroupModel(Graph graph, std::vector<Range> nodes, MakeBackend backend,
                       std::string schedule, uint64_t seed, LocalStages local)
    : graph_(std::move(graph)),
      nodes_(std::move(nodes)),
      backend_(std::move(backend)),
      schedule_(std::move(schedule)),
      seed_(seed),
      local_(std::move(local)),
      read_(tensors_read_by(graph_, nodes_)) {
  check_pieces(graph_, nodes_, local_.count);
  mark_stages(graph_.table, read_);
  table_ = graph_.table;
  heads_ = head_infos(graph_);
  const std::unique_ptr<ops::Backend> described = backend_(0);
  const ops::Backend::Scope scope(*described);
  numerics_ = described->numerics();
  is_on_device_ = described->device() != nullptr;
  for (int64_t k = 1; is_on_device_ && k < local_.count; ++k) {
    const std::unique_ptr<ops::Backend> another = backend_(k);
    const ops::Backend::Scope its_own(*another);
    device::check_same_kind(numerics_, another->numerics());
  }
  for (size_t s = 0; s + 1 < nodes_.size(); ++s) {
    const Graph stage = stage_graph(graph_, nodes_, s);
    const ops::ValueType& output = stage.values[static_cast<size_t>(stage.edges.output)];
    boundary_floats_ = std::max(boundary_floats_, ops::floats_of(*described, output));
    if (output.layout == ops::Layout::kNative) passes_images_ = true;
  }
}

size_t GroupModel::arena_bytes() const {
  size_t bytes = 0;
  for (const auto& stage : planned_) bytes += stage->graph().arena_bytes();
  return bytes;
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
  for (const auto& stage : planned_) stage->choose(choices);
}

void GroupModel::take_stage(int stage, const std::vector<int>& local_stages,
                            int64_t micro_batches) {
  PP_ASSERT(stage >= 0 && stage < stages() && std::ssize(local_stages) == stages());
  PP_ASSERT(local_stages[static_cast<size_t>(stage)] == local_.count);
  const auto here = local_stages.begin() + stage;
  const int64_t all = std::accumulate(local_stages.begin(), local_stages.end(), int64_t{0});
  first_local_ = std::accumulate(local_stages.begin(), here, int64_t{0});
  micro_batches_ = stage == stage_ ? std::max(micro_batches_, micro_batches) : micro_batches;
  std::vector<PlannedStage::Place> places;
  std::vector<size_t> slots;
  bool is_planned = stage == stage_;
  for (int64_t k = 0; k < local_.count; ++k) {
    places.push_back({schedule_, all, first_local_ + k});
    slots.push_back(
        static_cast<size_t>(stage_slots(schedule_, all, first_local_ + k, micro_batches_)));
    is_planned = is_planned && planned_[static_cast<size_t>(k)]->slots() >= slots.back();
  }
  if (is_planned) {
    for (size_t k = 0; k < planned_.size(); ++k) planned_[k]->move(places[k]);
    return;
  }
  planned_.clear();  // its arenas go before the next ones come
  stage_ = -1;
  const std::vector<Range> nodes =
      local_nodes(graph_, nodes_, static_cast<size_t>(stage), local_.count, local_.balance);
  for (size_t k = 0; k < nodes.size(); ++k) {
    std::unique_ptr<ops::Backend> backend = backend_(static_cast<int64_t>(k));
    if (!choices_.empty()) backend->choose(choices_);
    planned_.push_back(make_planned_stage(std::move(backend), stage_graph(graph_, nodes, k),
                                          slots[k], places[k], seed_));
  }
  stage_ = stage;
}

std::vector<PipelineStage*> GroupModel::planned() {
  PP_ASSERT(!planned_.empty());
  std::vector<PipelineStage*> out;
  for (const auto& stage : planned_) out.push_back(stage.get());
  return out;
}

}  // namespace pushpull
