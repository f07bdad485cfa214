// The one place where a worker's exchange is chosen by the job's strategy.
#pragma once

#include <memory>

#include "common/job/job.h"
#include "worker/schedule/schedule.h"
#include "worker/schedule/share_list.h"

namespace pushpull {

std::unique_ptr<Schedule> make_schedule(const Strategy& strategy, const WorkPlan& plan);

}  // namespace pushpull
