#include "worker/exchange/step.h"

#include <utility>

#include "common/base/error.h"
#include "common/job/job.h"
#include "models/pipeline.h"
#include "worker/compute/device_memory.h"
#include "worker/compute/stage_parts.h"

namespace pushpull {

namespace {

// Tasks that push the sum of their micro-batches' gradients. Slices are pushed as backward
// finishes them, or, if clip-norm applies per push, once the norm of the whole sum is known.
class GradientStep final : public Step {
 public:
  // clips_pushes: servers scale each push by its norm, so the push carries the norm.
  GradientStep(Compute& compute, const Encoder& encoder, bool clips_pushes)
      : compute_(compute), encoder_(encoder), clips_pushes_(clips_pushes) {}

  std::optional<Result> run(const Task& task, StepHost& host) override;
  bool holds_back_pushes() const override { return clips_pushes_; }

 private:
  struct Part {
    Range node;
    int slice = 0;
    Payload payload;
  };

  Compute& compute_;
  const Encoder& encoder_;
  const bool clips_pushes_;
};

std::optional<Step::Result> GradientStep::run(const Task& task, StepHost& host) {
  const std::vector<Range> nodes = host.nodes();
  compute_.begin(task.step, nodes, host.weights());
  host.hint_next();
  Result result;
  bool begun = false;
  std::vector<Part> held;
  const auto push = [&](const Range& node, int slice, Payload part) {
    if (!std::exchange(begun, true)) host.begin_push();
    host.push(node, slice, std::move(part), !clips_pushes_);
  };
  const auto push_held = [&] {
    for (Part& of : held) push(of.node, of.slice, std::move(of.payload));
    held.clear();
  };
  for (const Range& node : nodes) {
    const bool holds = host.may_become_void() && (clips_pushes_ || &node != &nodes.back());
    const auto push_slice = [&](int slice, Payload part) {
      Payload encoded = host.encoded(node, slice, std::move(part));
      if (holds) return void(held.push_back({node, slice, std::move(encoded)}));
      push_held();
      push(node, slice, std::move(encoded));
    };
    try {
      if (!compute_.node(push_slice, result.losses, host.weights_needed())) return std::nullopt;
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kNotFinite) host.note_not_finite();
      throw;
    }
  }
  if (clips_pushes_) {
    // the norm of the values that servers decode
    const auto sum = encoder_.sent().empty() ? compute_.sum() : encoder_.sent();
    result.squares = compute_.squares(sum, task.step, task.range);
  }
  result.learning_rate = compute_.learning_rate();
  push_held();
  if (!begun) host.begin_push();  // the stage of a small model may own no element
  return result;
}

LocalPart local_part(Model& model, const SliceMap& map) {
  const GroupStage* const group = model.group_stage();
  if (group == nullptr) return {};
  const int stage = group->stage();
  return {stage, stage_parts(model.table(), map, group->tensors_read(), stage).reads};
}

}  // namespace

MakeStep push_steps(const Job& job, Model& model, int64_t total_steps) {
  return [&job, &model, total_steps](const StepParts& parts) -> std::unique_ptr<Step> {
    const StrategyTraits& traits = job.strategy.traits();
    if (traits.outer_optimizer) {
      return std::make_unique<LocalRounds>(
          parts.compute,
          LocalSteps(job, model.table(), parts.slices, total_steps,
                     {parts.gradients, weights_memory(model)}, local_part(model, parts.slices)),
          job.clip_norm > 0);
    }
    const bool clips_pushes = job.clip_norm > 0 && traits.single_pushes;
    return std::make_unique<GradientStep>(parts.compute, parts.encoder, clips_pushes);
  };
}

LocalRounds::LocalRounds(Compute& compute, LocalSteps steps, bool clips)
    : compute_(compute), steps_(std::move(steps)), clips_(clips) {}

// The first gradient is taken at the pulled weights, so it may begin before all of them have
// arrived.
std::optional<Step::Result> LocalRounds::run(const Task& task, StepHost& host) {
  if (std::exchange(attempt_, host.attempt()) != host.attempt()) steps_.forget();
  std::span<const float> weights = host.weights();
  Result result;
  const auto keep = [](int, const Payload&) {};
  for (int64_t i = 0; i < task.steps; ++i) {
    compute_.begin(task.step + i, {task.range}, weights);
    if (i + 1 < task.steps) {
      compute_.hint(task.step + i + 1, {task.range});
    } else {
      host.hint_next();
    }
    try {
      if (!compute_.node(keep, result.losses, host.weights_needed())) return std::nullopt;
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kNotFinite) host.note_not_finite();
      throw;
    }
    if (i == 0) {
      host.may_become_void() ? host.await_all_weights() : host.begin_push();
      steps_.begin(task.range, host.weights());
      weights = steps_.weights();
    }
    const double squares =
        clips_ ? compute_.squares(compute_.sum(), task.step + i, task.range) : 0.0;
    result.learning_rate = compute_.learning_rate();
    steps_.step(task.step + i, compute_.sum(), squares, result.learning_rate);
    if (i + 1 < task.steps) {
      compute_.share_weights(task.step + i, task.range, steps_.weights().data());
    }
  }
  if (host.may_become_void()) host.begin_push();
  steps_.finish(host.weights(), [&](int slice, Payload part) {
    host.push(task.range, slice, host.encoded(task.range, slice, std::move(part)), true);
  });
  return result;
}

}  // namespace pushpull
