#include "ps/engine/server_device.h"

#include "common/base/error.h"
#include "common/device/local_gpu.h"
#include "common/job/job.h"

namespace pushpull {

using device::DeviceName;

std::shared_ptr<device::Device> open_server_device(
    const std::string& text, const TaskOnHost& task,
    const std::function<void(const std::string&)>& say) {
  const bool automatic = text == "auto";
  DeviceName name;
  if (automatic) {
    name = device::take_local_gpu(task, say);
  } else {
    const std::vector<DeviceName> names = device::parse_devices(text, 0);
    if (names.size() > 1) {
      throw Error(ErrorCode::kUsage,
                  "[device] --device " + text + ": a server uses one; start more servers");
    }
    name = names.front();
  }
  if (name.kind == DeviceName::kCpu) return nullptr;
  try {
    return device::open(name);
  } catch (const Error& e) {
    if (!automatic) throw;
    say(std::string("keeps weights in host memory: ") + e.what());
    return nullptr;
  }
}

std::string why_not_on_device(const Job& job) {
  if (job.strategy.traits().workers_update) {
    return "strategy = " + job.strategy.to_string() + " updates them in the workers";
  }
  if (job.codec != Codec{}) return "codec = " + job.codec.to_string() + " is decoded there";
  if (!job.codec_tensors.rules.empty()) {
    return "codec-tensors = " + job.codec_tensors.to_string() + " is decoded there";
  }
  if (job.pull_codec != Codec{}) {
    return "pull-codec = " + job.pull_codec.to_string() + " is encoded there";
  }
  return "";
}

}  // namespace pushpull
