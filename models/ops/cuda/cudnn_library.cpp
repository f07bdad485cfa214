#include "models/ops/cuda/cudnn_library.h"

#include <string>

#include "common/base/console.h"
#include "common/device/shared_library.h"

namespace pushpull::ops::cuda {

namespace {

class Opened {
 public:
  Opened() {
    std::string why = library_.is_open() ? "" : library_.failures();
    if (library_.is_open()) why = find_all();
    usable_ = why.empty();
    if (!usable_) {
      Log("device").info("[models] convolutions are computed without cuDNN (" + why +
                         "); to use it, name its folder in PUSHPULL_CUDA_LIBS");
    }
  }

  const Cudnn* functions() const { return usable_ ? &functions_ : nullptr; }

 private:
  // Returns why the library cannot be used, or "" if it can.
  std::string find_all() {
    std::string missing;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library_.find(name));
      if (function == nullptr) missing = library_.path() + " has no " + name;
    };
#define PUSHPULL_FIND(name) find(functions_.name, #name);
    PUSHPULL_CUDNN(PUSHPULL_FIND)
#undef PUSHPULL_FIND
    if (!missing.empty()) return missing;
    const size_t version = functions_.cudnnGetVersion();
    if (version / kCudnnMajorVersion == CUDNN_MAJOR) return {};
    return library_.path() + " is version " + std::to_string(version) + ", not " +
           std::to_string(CUDNN_MAJOR);
  }

  device::SharedLibrary library_{"libcudnn.so." + std::to_string(CUDNN_MAJOR)};
  Cudnn functions_;
  bool usable_ = false;
};

}  // namespace

const Cudnn* cudnn() {
  static const Opened opened;
  return opened.functions();
}

}  // namespace pushpull::ops::cuda
