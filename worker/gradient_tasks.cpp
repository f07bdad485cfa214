#include "worker/gradient_tasks.h"

#include <utility>

#include "common/base/error.h"

namespace pushpull {

GradientTasks::GradientTasks(Compute& compute, const Encoder& encoder, bool clips_pushes)
    : compute_(compute), encoder_(encoder), clips_pushes_(clips_pushes) {}

std::optional<TaskComputer::Result> GradientTasks::run(const Task& task, TaskHost& host) {
  const std::vector<Range> nodes = host.nodes();
  compute_.begin(task.step, nodes, host.weights());
  host.hint_next();
  Result result;
  bool begun = false;
  for (const Range& node : nodes) {
    const auto push_slice = [&](int slice, Payload part) {
      if (!std::exchange(begun, true)) host.begin_push();
      host.push(node, slice, std::move(part), !clips_pushes_);
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
    result.squares = compute_.squares(sum, task.range.size());
  }
  return result;
}

}  // namespace pushpull
