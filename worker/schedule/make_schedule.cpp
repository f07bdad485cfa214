#include "worker/schedule/make_schedule.h"

#include "common/job/strategy.h"
#include "worker/schedule/lease_schedule.h"
#include "worker/schedule/lockstep_schedule.h"
#include "worker/schedule/newest_schedule.h"
#include "worker/schedule/stale_schedule.h"

namespace pushpull {

std::unique_ptr<Schedule> make_schedule(const Strategy& strategy, const WorkPlan& plan) {
  const StrategyTraits& traits = strategy.traits();
  if (traits.leases) return std::make_unique<LeaseSchedule>(plan);
  if (!traits.step_versions) return std::make_unique<StaleSchedule>(plan);
  if (!traits.whole_steps) return std::make_unique<NewestSchedule>(plan);
  return std::make_unique<LockstepSchedule>(plan, traits.same_bits);
}

}  // namespace pushpull
