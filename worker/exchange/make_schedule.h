// The one place where a worker's exchange is chosen by the job's strategy.
#pragma once

#include <memory>

#include "common/job/job.h"
#include "worker/exchange/schedule.h"
#include "worker/exchange/share_list.h"

namespace pushpull {

std::unique_ptr<Schedule> make_schedule(const Strategy& strategy, const WorkPlan& plan);

}  // namespace pushpull
