// pushpull-worker: joins a job, computes gradients, pushes and pulls until it is over.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/device/device_name.h"
#include "common/job.h"
#include "models/model.h"
#include "worker/devices.h"

namespace pushpull {

// What a test has others of.
struct WorkerParts {
  std::function<std::vector<device::DeviceName>(const std::string& text,
                                                const std::function<void(const std::string&)>& say)>
      choose_devices = pushpull::choose_devices;
  std::function<std::unique_ptr<Model>(const Job& job, const InputShape& input, int64_t classes,
                                       const device::DeviceName& device)>
      make_model = pushpull::make_model;
};

// Returns the exit code; what went wrong has been said.
int worker_program(int argc, char** argv, const WorkerParts& parts = {});

}  // namespace pushpull
