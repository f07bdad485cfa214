// The devices that `--device` names. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/device/device_name.h"

namespace pushpull {

// text: of the flag; "": cpu, for which nothing is asked of a driver. A GPU that is named must be
// there; `auto` takes cuda:0 where it can be used.
//   say: gets one line that names the devices, unless it is the processor and nothing else was
//   wanted.
// Throws Error(kUsage | kDevice).
std::vector<device::DeviceName> choose_devices(const std::string& text,
                                               const std::function<void(const std::string&)>& say);
// For programs that compute on one.
device::DeviceName choose_device(const std::string& text,
                                 const std::function<void(const std::string&)>& say);

// The device of each worker, or server, of `pushpull run`: with `cuda` they take the host's
// GPUs in turns.
std::vector<std::string> devices_in_turns(const std::string& text, int64_t processes,
                                          int cuda_devices);

}  // namespace pushpull
