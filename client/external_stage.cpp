#include "client/external_stage.h"

#include <numeric>
#include <utility>

#include "common/base/error.h"
#include "common/layout/slice_map.h"
#include "common/net/model_wire.h"

namespace pushpull {

ExternalStage::ExternalStage(const ExternalSpec& spec, Handover& handover)
    : spec_(spec), handover_(handover), read_(1, std::vector<size_t>(spec.table.tensors.size())) {
  PP_ASSERT(spec.own_stage.has_value());
  table_ = spec.table;
  heads_ = spec.heads;
  std::iota(read_.front().begin(), read_.front().end(), size_t{0});
}

float ExternalStage::train(std::span<const float> /*weights*/, const Samples& /*samples*/,
                           std::span<float> /*gradients*/, const GradientReady& /*ready*/,
                           const WeightsNeeded& /*needed*/) {
  PP_ASSERT(false);
  return 0.0F;
}

void ExternalStage::evaluate(std::span<const float> /*weights*/, const Samples& /*samples*/,
                             std::span<HeadSums> /*sums*/) {
  PP_ASSERT(false);
}

void ExternalStage::choose(const std::string& choices) {
  if (choices.empty()) return;
  throw Error(ErrorCode::kProtocol,
              "[client] the job has choices of algorithms, and an external model has none");
}

void ExternalStage::keep_final(std::span<const float> weights) {
  if (spec_.test_samples == 0) handover_.keep_final(own_, weights);
}

// A worker owns less than a block of the elements of others, and lacks less than a block of its own.
size_t ExternalStage::boundary_floats() const { return kBlockElements; }

void ExternalStage::take_whole(const TensorTable& table) {
  std::vector<std::vector<size_t>> read(1);
  for (size_t i = 0; i < table.tensors.size(); ++i) {
    if (table.tensors[i].begins_stage) read.emplace_back();
    read.back().push_back(i);
  }
  const auto stage = static_cast<size_t>(spec_.own_stage->stage);
  const auto differs = [&](const std::string& what) {
    return Error(ErrorCode::kProtocol,
                 "[stages] the job's model differs from what this worker "
                 "has declared as stage " +
                     std::to_string(stage) + ": " + what);
  };
  if (std::ssize(read) != spec_.own_stage->stages) {
    throw differs("the job has " + std::to_string(read.size()) + " stages, this worker " +
                  std::to_string(spec_.own_stage->stages));
  }
  TensorTable own;
  TensorTable alone;
  for (const size_t tensor : read[stage]) {
    own.tensors.push_back(table.tensors[tensor]);
    alone.add(table.tensors[tensor]);
    alone.tensors.back().begins_stage = false;
  }
  own.total = table.total;
  if (const std::string what = difference(alone, spec_.table); !what.empty()) throw differs(what);
  first_ = read[stage].front();
  own_ = std::move(own);
  read_ = std::move(read);
  table_ = table;
}

void ExternalStage::take_stage(int stage, const std::vector<int>& /*local_stages*/,
                               int64_t /*micro_batches*/) {
  if (stage != spec_.own_stage->stage) {
    throw Error(ErrorCode::kProtocol,
                "[stages] this worker has stage " + std::to_string(spec_.own_stage->stage) +
                    ", and the coordinator has given it stage " + std::to_string(stage));
  }
  taken_ = true;
}

// ---- passes ----

namespace {

struct SampleBatch final : PipelineStage::Batch {
  explicit SampleBatch(const Samples& given) : samples(given) {}
  Samples samples;
};

}  // namespace

std::vector<size_t> ExternalStage::Passes::tensors() const {
  return of_.read_[static_cast<size_t>(of_.spec_.own_stage->stage)];
}

std::vector<StageAction> ExternalStage::Passes::actions(int64_t micro_batches) const {
  std::vector<StageAction> out;
  for (int64_t i = 0; i < micro_batches; ++i) {
    out.push_back({true, i});
    out.push_back({false, i});
  }
  return out;
}

// Forward follows before the next micro-batch is read.
std::unique_ptr<PipelineStage::Batch> ExternalStage::Passes::prepare(const Samples& samples) const {
  return std::make_unique<SampleBatch>(samples);
}

void ExternalStage::Passes::forward(const Pass& pass, const float* /*input*/, float* /*output*/,
                                    const WeightsNeeded& needed) {
  const auto& batch = static_cast<const SampleBatch&>(*pass.batch);
  const WeightsNeeded of_whole = [&](size_t tensor) { needed(of_.first_ + tensor); };
  loss_ = of_.handover_.train(
      of_.own_, pass.weights, batch.samples, pass.gradients, [](size_t /*tensor*/) {},
      needed ? of_whole : needed);
}

void ExternalStage::Passes::backward(const Pass& /*pass*/, const float* /*output_gradient*/,
                                     float* /*input_gradient*/, const GradientReady& ready) {
  for (size_t i = of_.own_.tensors.size(); i-- > 0;) ready(of_.first_ + i);
}

void ExternalStage::Passes::evaluate(std::span<const float> weights, const Samples& samples,
                                     const float* /*input*/, float* /*output*/,
                                     std::span<HeadSums> sums) {
  of_.handover_.evaluate(of_.own_, weights, samples, sums);
}

}  // namespace pushpull
