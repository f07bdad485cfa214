// Makes the TaskComputer of a worker. The job's strategy decides its kind here and nowhere else.
#pragma once

#include <cstdint>
#include <memory>

#include "common/job/job.h"
#include "worker/compute/compute.h"
#include "worker/exchange/encoder.h"
#include "worker/exchange/local_steps.h"
#include "worker/task_computer.h"

namespace pushpull {

// total_steps: the horizon of the learning rate's schedule. memory: where local steps keep buffers
// that servers read. Borrows `job`, `table`, `compute` and `encoder`.
std::unique_ptr<TaskComputer> make_task_computer(const Job& job, const TensorTable& table,
                                                 const SliceMap& map, int64_t total_steps,
                                                 const LocalMemory& memory, Compute& compute,
                                                 const Encoder& encoder);

}  // namespace pushpull
