#include "worker/make_task_computer.h"

#include "worker/gradient_tasks.h"
#include "worker/local_rounds.h"

namespace pushpull {

std::unique_ptr<TaskComputer> make_task_computer(const Job& job, const TensorTable& table,
                                                 const SliceMap& map, int64_t total_steps,
                                                 const LocalMemory& memory, Compute& compute,
                                                 const Encoder& encoder) {
  const StrategyTraits& traits = job.strategy.traits();
  if (traits.outer_optimizer) {
    return std::make_unique<LocalRounds>(compute, LocalSteps(job, table, map, total_steps, memory));
  }
  const bool clips_pushes = job.clip_norm > 0 && traits.single_pushes;
  return std::make_unique<GradientTasks>(compute, encoder, clips_pushes);
}

}  // namespace pushpull
