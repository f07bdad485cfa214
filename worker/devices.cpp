#include "worker/devices.h"

#include "common/base/error.h"
#include "common/device/device.h"
#include "common/device/local_gpu.h"

namespace pushpull {

using device::DeviceName;

namespace {

DeviceName automatic(const TaskOnHost& task, const std::function<void(const std::string&)>& say) {
  const DeviceName own = device::take_local_gpu(task, say);
  try {
    say("computes on " + device::open(own)->name());
    return own;
  } catch (const Error& e) {
    say(std::string("computes on the processor: ") + e.what());
    return {};
  }
}

}  // namespace

std::vector<DeviceName> choose_devices(const std::string& text, const TaskOnHost& task,
                                       const std::function<void(const std::string&)>& say) {
  if (text.empty()) return {DeviceName{}};
  if (text == "auto") return {automatic(task, say)};
  std::vector<DeviceName> names = device::parse_devices(text, 0);
  std::string there;
  for (const DeviceName& name : names) {
    if (name.kind == DeviceName::kCpu) return names;
    there += (there.empty() ? "" : ", ") + device::open(name)->name();
  }
  say("computes on " + there);
  return names;
}

DeviceName choose_device(const std::string& text,
                         const std::function<void(const std::string&)>& say) {
  if (!text.empty() && text != "auto" && device::parse_devices(text, 0).size() > 1) {
    throw Error(ErrorCode::kUsage,
                "[device] --device " + text + ": only workers can use several devices");
  }
  return choose_devices(text, {}, say).front();
}

std::vector<std::string> devices_in_turns(const std::string& text, int64_t processes,
                                          int cuda_devices) {
  std::vector<std::string> out(static_cast<size_t>(processes), text);
  if (text != "cuda" || cuda_devices < 2) return out;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto index = static_cast<int>(i % static_cast<size_t>(cuda_devices));
    out[i] = DeviceName{DeviceName::kCuda, index}.to_string();
  }
  return out;
}

}  // namespace pushpull
