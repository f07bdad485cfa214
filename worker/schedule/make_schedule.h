// Makes the schedule of a worker. The job's strategy decides its kind here and nowhere else.
#pragma once

#include <memory>

#include "worker/schedule/schedule.h"
#include "worker/schedule/share_list.h"

namespace pushpull {

struct Strategy;

std::unique_ptr<Schedule> make_schedule(const Strategy& strategy, const WorkPlan& plan);

}  // namespace pushpull
