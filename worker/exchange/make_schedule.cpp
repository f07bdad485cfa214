#include "worker/exchange/make_schedule.h"

#include "worker/exchange/lease_schedule.h"
#include "worker/exchange/lockstep_schedule.h"
#include "worker/exchange/newest_schedule.h"
#include "worker/exchange/stale_schedule.h"

namespace pushpull {

std::unique_ptr<Schedule> make_schedule(const Strategy& strategy, const WorkPlan& plan) {
  const StrategyTraits& traits = strategy.traits();
  if (traits.leases) return std::make_unique<LeaseSchedule>(plan);
  if (!traits.step_versions) return std::make_unique<StaleSchedule>(plan);
  if (!traits.whole_steps) return std::make_unique<NewestSchedule>(plan);
  return std::make_unique<LockstepSchedule>(plan, traits.same_bits);
}

}  // namespace pushpull
