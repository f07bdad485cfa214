// Chooses the devices that --device names. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/device/device_name.h"
#include "common/host/cores.h"

namespace pushpull {

// Returns the devices that `text`, the flag's value, names. "" means cpu and loads no driver. A GPU
// that is named must exist; `auto` is the task's GPU if that is usable, or else cpu.
//   task: place of this process on its host; only for `auto`.
//   say: gets one line that names the devices, unless the choice is cpu and `text` is not `auto`.
// Throws Error(kUsage | kDevice).
std::vector<device::DeviceName> choose_devices(const std::string& text, const TaskOnHost& task,
                                               const std::function<void(const std::string&)>& say);
// The same for programs that are started alone and use a single device. Throws Error(kUsage) if `text` names several.
device::DeviceName choose_device(const std::string& text,
                                 const std::function<void(const std::string&)>& say);

// Returns the device of each process of `pushpull run`: `cuda` deals the host's GPUs out in turn.
std::vector<std::string> devices_in_turns(const std::string& text, int64_t processes,
                                          int cuda_devices);

}  // namespace pushpull
