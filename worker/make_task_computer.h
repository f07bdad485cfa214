// The one place where the job decides what a worker's tasks compute and push.
#pragma once

#include <cstdint>
#include <memory>

#include "common/job/job.h"
#include "worker/compute/compute.h"
#include "worker/exchange/encoder.h"
#include "worker/exchange/local_steps.h"
#include "worker/task_computer.h"

namespace pushpull {

// total_steps: schedule horizon. memory: where local steps keep what others read. The compute and
// the encoder are borrowed, and so are the job and the table.
std::unique_ptr<TaskComputer> make_task_computer(const Job& job, const TensorTable& table,
                                                 const SliceMap& map, int64_t total_steps,
                                                 const LocalMemory& memory, Compute& compute,
                                                 const Encoder& encoder);

}  // namespace pushpull
