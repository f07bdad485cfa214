// The GPU of one task among those of its host, for `--device auto`: local rank modulo the number of GPUs. Programs call
// take_local_gpu in main; the rest is arithmetic.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/device/device_name.h"
#include "common/host/cores.h"

namespace pushpull::device {

// Returns the index of the task's GPU among `gpus` > 0 visible ones.
int gpu_of_task(const TaskOnHost& task, int gpus);

// Returns a line for users if tasks share GPUs, or "". Only one task of a host returns it: rank 0, or if the size is
// unknown, the first one that has no GPU of its own.
//   restricted: CUDA_VISIBLE_DEVICES is set, so that with one GPU each task may see another one.
std::string sharing_text(const TaskOnHost& task, int gpus, bool restricted);

// CUDA shows a process only the first MIG instance of CUDA_VISIBLE_DEVICES. Returns the one that this task should name
// there instead, or nullopt if `visible` does not name several.
std::optional<std::string> mig_of_task(const std::string& visible, const TaskOnHost& task);

// Returns this task's GPU, or cuda:0 if there is none: `open` then says why. Narrows CUDA_VISIBLE_DEVICES to one MIG
// instance if there are several. Call it before any other function of CUDA and before threads start.
//   say: gets the line of sharing_text.
DeviceName take_local_gpu(const TaskOnHost& task,
                          const std::function<void(const std::string&)>& say);

}  // namespace pushpull::device
