// Opens the device named by `pushpull-server --device`. Startup only.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/device/device.h"
#include "common/host/cores.h"

namespace pushpull {

struct Job;

// Returns the device, or null for the host.
//   text: cpu, cuda, cuda:N, or auto, which is the task's GPU if it can be used.
//   task: place of this process on its host; only for `auto`.
//   say: receives one line that says why `auto` uses no device.
// Throws Error(kUsage | kDevice).
std::shared_ptr<device::Device> open_server_device(
    const std::string& text, const TaskOnHost& task,
    const std::function<void(const std::string&)>& say);

// Returns why servers of this job keep their weights in host memory on any device, or "".
std::string why_not_on_device(const Job& job);

}  // namespace pushpull
