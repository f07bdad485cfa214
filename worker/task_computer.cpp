#include "worker/task_computer.h"

#include <utility>

#include "common/base/error.h"

namespace pushpull {

LocalRounds::LocalRounds(Compute& compute, LocalSteps steps)
    : compute_(compute), steps_(std::move(steps)) {}

// The first gradient is taken at the pulled weights, so it may begin before all of them have
// arrived.
std::optional<TaskComputer::Result> LocalRounds::run(const Task& task, TaskHost& host) {
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
      host.begin_push();
      steps_.begin(task.range, host.weights());
      weights = steps_.weights();
    }
    steps_.step(task.step + i, compute_.sum());
  }
  steps_.finish(host.weights(), [&](int slice, Payload part) {
    host.push(task.range, slice, std::move(part), true);
  });
  return result;
}

}  // namespace pushpull
