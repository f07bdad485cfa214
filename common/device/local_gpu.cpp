#include "common/device/local_gpu.h"

#include <cstdlib>
#include <sstream>
#include <vector>

#include "common/base/text.h"
#include "common/device/device.h"

namespace pushpull::device {

namespace {

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

std::vector<std::string> mig_names(const std::string& visible) {
  std::vector<std::string> names;
  std::istringstream words(visible);
  for (std::string word; std::getline(words, word, ',');) {
    const std::string name(trim(word));
    if (!name.starts_with("MIG-")) return {};
    names.push_back(name);
  }
  return names;
}

}  // namespace

int gpu_of_task(const TaskOnHost& task, int gpus) { return static_cast<int>(task.rank % gpus); }

std::string sharing_text(const TaskOnHost& task, int gpus, bool restricted) {
  if (task.size == 0) {
    if (task.rank != gpus) return "";
    return "local rank " + std::to_string(task.rank) + " sees " + plural(gpus, "GPU") +
           ": tasks share them round robin";
  }
  if (task.rank != 0 || task.size <= gpus) return "";
  const std::string text = plural(task.size, "task") + " on this host and " + plural(gpus, "GPU");
  if (gpus == 1 && restricted) {
    return text + " in CUDA_VISIBLE_DEVICES: they share it, unless it is another one in each task";
  }
  return text + ": they share " + (gpus == 1 ? "it" : "them round robin");
}

std::optional<std::string> mig_of_task(const std::string& visible, const TaskOnHost& task) {
  const std::vector<std::string> names = mig_names(visible);
  if (names.size() < 2) return std::nullopt;
  return names[static_cast<size_t>(task.rank) % names.size()];
}

DeviceName take_local_gpu(const TaskOnHost& task,
                          const std::function<void(const std::string&)>& say) {
  const char* const visible =
      std::getenv(kVisible);  // NOLINT(concurrency-mt-unsafe): before threads
  const std::string text = visible == nullptr ? "" : visible;
  const auto mig = mig_of_task(text, task);
  if (mig) setenv(kVisible, mig->c_str(), 1);  // NOLINT(concurrency-mt-unsafe): before threads
  const int gpus = mig ? static_cast<int>(mig_names(text).size()) : count();
  if (gpus == 0) return {DeviceName::kCuda, 0};
  if (const std::string line = sharing_text(task, gpus, visible != nullptr); !line.empty()) {
    say(line);
  }
  return {DeviceName::kCuda, mig ? 0 : gpu_of_task(task, gpus)};
}

}  // namespace pushpull::device
