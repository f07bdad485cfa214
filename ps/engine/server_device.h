// The meaning of `pushpull-server --device`.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/device/device.h"
#include "common/job/job.h"

namespace pushpull {

// text: cpu, cuda, cuda:N, or auto, which takes cuda:0 where it can be used. Null: the host.
//   say: told in one line why `auto` takes none.
// Throws Error(kUsage | kDevice).
std::shared_ptr<device::Device> open_server_device(
    const std::string& text, const std::function<void(const std::string&)>& say);

// Why servers of this job keep their weights in host memory, whatever their device; "": they need
// not.
std::string why_not_on_device(const Job& job);

}  // namespace pushpull
