#include "worker/compute/evaluate.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/job/job.h"
#include "common/net/model_wire.h"
#include "models/pipeline.h"

namespace pushpull {

Evaluator::Evaluator(const Job& job, const Dataset& dataset, Model& model)
    : dataset_(dataset),
      model_(model),
      chunk_size_(job.micro_batch),
      layout_(dataset.fields(), job.micro_batch),
      block_(layout_.words()),
      sums_(model.heads().size()) {
  PP_ASSERT(chunk_size_ > 0);
}

int64_t Evaluator::chunks() const {
  return (dataset_.size(Split::kTest) + chunk_size_ - 1) / chunk_size_;
}

int64_t Evaluator::samples(int64_t chunk) const {
  return std::min(chunk_size_, dataset_.size(Split::kTest) - chunk * chunk_size_);
}

void Evaluator::find_indices(int64_t chunk) {
  PP_ASSERT(chunk >= 0 && chunk < chunks());
  indices_.resize(static_cast<size_t>(samples(chunk)));
  std::iota(indices_.begin(), indices_.end(), chunk * chunk_size_);
}

void Evaluator::announce(int64_t chunk) {
  if (layout_.words() > 0) return;
  find_indices(chunk);
  dataset_.announce({.split = Split::kTest, .micro_batch = chunk, .indices = indices_});
}

Samples Evaluator::read(int64_t chunk, bool same_weights) {
  find_indices(chunk);
  // pads with zeros rather than an earlier chunk's samples, so that the bits depend on this chunk
  // alone
  if (std::ssize(indices_) < chunk_size_) std::fill(block_.begin(), block_.end(), 0.0F);
  dataset_.read({Split::kTest, 0, indices_, layout_}, block_.data());
  return {-1, chunk, indices_, block_, 0, same_weights};
}

std::span<const HeadSums> Evaluator::run(std::span<const float> weights, int64_t chunk,
                                         bool same_weights) {
  PP_ASSERT(std::ssize(weights) == model_.table().total);
  model_.evaluate(weights, read(chunk, same_weights), sums_);
  return sums_;
}

bool Evaluator::is_last_stage() const {
  const GroupStage* const stage = group();
  return stage == nullptr || stage->stage() + 1 == stage->stages();
}

std::span<const HeadSums> Evaluator::run_stage(std::span<const float> weights, int64_t chunk,
                                               const float* input, float* output,
                                               bool same_weights) {
  PP_ASSERT(std::ssize(weights) == model_.table().total);
  std::span<HeadSums> sums = sums_;
  if (!is_last_stage()) sums = {};
  evaluate_stages(group()->planned(), weights, read(chunk, same_weights), input, output, sums);
  return sums;
}

EvaluationShare::EvaluationShare(Evaluator evaluator, uint64_t incarnation,
                                 std::function<bool()> over, Activity& activity, Trace* trace,
                                 StageExchange* exchange)
    : evaluator_(std::move(evaluator)),
      incarnation_(incarnation),
      over_(std::move(over)),
      activity_(activity),
      trace_(trace),
      exchange_(exchange) {}

namespace {

constexpr auto kEvaluated = wire::StagePart::KIND_EVALUATED;
// A stage computes at most so many chunks that the stage behind has not taken: it bounds the memory
// that they need. For each chunk taken, a float goes back.
constexpr int64_t kAhead = 4;
constexpr size_t kTaken = 1;

Payload one_float(float value) {
  const auto floats = std::make_shared<float>(value);
  return {floats, std::as_bytes(std::span<const float>(floats.get(), 1))};
}

}  // namespace

bool EvaluationShare::programs_pass() const {
  GroupStage* const group = evaluator_.group();
  if (group == nullptr) return false;
  const std::vector<PipelineStage*> stages = group->planned();
  return stages.front()->input_floats() == 0 && stages.back()->output_floats() == 0;
}

// These go ahead of the chunks, with a number that no chunk has.
bool EvaluationShare::all_evaluate(int64_t step, Range chunks, bool evaluates) {
  const GroupStage& group = *evaluator_.group();
  const int64_t number = this->chunks() + chunks.lo;
  for (int stage = 0; stage < group.stages(); ++stage) {
    if (stage == group.stage()) continue;
    exchange_->send({stage, kEvaluated, step, number}, one_float(evaluates ? 1.0F : 0.0F));
  }
  for (int stage = 0; stage < group.stages(); ++stage) {
    if (stage == group.stage()) continue;
    const Payload told = exchange_->receive({stage, kEvaluated, step, number}, 1);
    evaluates = evaluates && *told.floats() != 0.0F;
  }
  return evaluates;
}

void EvaluationShare::tell(int64_t step, Range chunks, bool evaluates) {
  GroupStage* const group = evaluator_.group();
  if (group == nullptr || group->stage() + 1 == group->stages()) return;
  exchange_->send({group->stage() + 1, kEvaluated, step, this->chunks() + chunks.lo},
                  one_float(evaluates ? 1.0F : 0.0F));
}

bool EvaluationShare::stages_before_evaluate(int64_t step, Range chunks) {
  GroupStage* const group = evaluator_.group();
  if (group == nullptr || group->stage() == 0) return true;
  const Payload told =
      exchange_->receive({group->stage() - 1, kEvaluated, step, this->chunks() + chunks.lo}, 1);
  return *told.floats() != 0.0F;
}

void EvaluationShare::send_taken(int64_t step, int64_t chunk, Range chunks) {
  if (chunk + kAhead >= chunks.hi) return;
  exchange_->send({evaluator_.group()->stage() - 1, kEvaluated, step, chunk}, one_float(1.0F));
}

wire::EvalResult EvaluationShare::skip(int64_t step, Range chunks) {
  if (chunks.size() == 0) return {};
  if (programs_pass()) {
    all_evaluate(step, chunks, false);
    return {};
  }
  tell(step, chunks, false);
  for (int64_t chunk = chunks.lo; chunk < chunks.hi && evaluator_.group()->stage() > 0; ++chunk) {
    send_taken(step, chunk, chunks);
  }
  return {};
}

Payload EvaluationShare::input_of(int64_t step, int64_t chunk, Range chunks) {
  GroupStage* const group = evaluator_.group();
  if (group == nullptr || group->stage() == 0 || programs_pass()) return {};
  const int before = group->stage() - 1;
  Payload input = exchange_->receive({before, kEvaluated, step, chunk},
                                     group->planned().front()->input_floats());
  send_taken(step, chunk, chunks);
  return input;
}

std::shared_ptr<float[]> EvaluationShare::output_of(int64_t step, int64_t chunk, Range chunks) {
  GroupStage* const group = evaluator_.group();
  if (evaluator_.is_last_stage() || programs_pass()) return nullptr;
  if (chunk - kAhead >= chunks.lo) {
    exchange_->receive({group->stage() + 1, kEvaluated, step, chunk - kAhead}, kTaken);
  }
  const size_t floats = group->planned().back()->output_floats();
  if (!outputs_ || outputs_->floats() != floats) outputs_.emplace(floats);
  return outputs_->get();
}

std::optional<wire::EvalResult> EvaluationShare::run(int64_t step, Range chunks,
                                                     std::span<const float> weights) {
  const bool traced = trace_ != nullptr && trace_->on();
  wire::EvalResult result;
  result.set_incarnation(incarnation_);
  result.set_step(step);
  if (chunks.size() > 0 && programs_pass()) {
    if (!all_evaluate(step, chunks, true)) return wire::EvalResult{};
  } else if (chunks.size() > 0) {
    if (!stages_before_evaluate(step, chunks)) return skip(step, chunks);
    tell(step, chunks, true);
  }
  for (int64_t chunk = chunks.lo; chunk < chunks.hi; ++chunk) evaluator_.announce(chunk);
  for (int64_t chunk = chunks.lo; chunk < chunks.hi; ++chunk) {
    if (over_()) return std::nullopt;
    const Payload input = input_of(step, chunk, chunks);
    const std::shared_ptr<float[]> output = output_of(step, chunk, chunks);
    const double begin_s = traced ? now_seconds() : 0.0;
    const std::span<const HeadSums> sums =
        evaluator_.group() == nullptr
            ? evaluator_.run(weights, chunk, chunk > chunks.lo)
            : evaluator_.run_stage(weights, chunk, input.owner ? input.floats() : nullptr,
                                   output.get(), chunk > chunks.lo);
    if (output) {
      const std::span<const float> floats(output.get(), outputs_->floats());
      exchange_->send({evaluator_.group()->stage() + 1, kEvaluated, step, chunk},
                      {output, std::as_bytes(floats)});
    }
    if (evaluator_.is_last_stage()) {
      wire::ChunkResult* out = result.add_chunks();
      out->set_chunk(chunk);
      to_wire(sums, out);
      for (const auto& [name, value] : evaluator_.named_sums()) {
        wire::NamedSum* const named = out->add_named();
        named->set_name(name);
        named->set_value(value);
      }
    }
    activity_.add_computed(1);
    if (traced) trace_->add(Trace::kEvaluate, step, chunk, begin_s, now_seconds());
  }
  if (over_()) return std::nullopt;
  return result;
}

}  // namespace pushpull
