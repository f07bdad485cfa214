#include "common/device/cuda_libraries.h"

#include <string>

#include "common/base/error.h"
#include "common/device/shared_library.h"

namespace pushpull::device {

namespace {

#define PUSHPULL_FIND(name) find(functions.name, #name);

// Structure layouts are stable within one major version, so asks for the one of our headers.
std::string soname() { return "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR); }

struct Opened {
  SharedLibrary library{soname()};
  CublasLt functions;

  Opened() {
    if (!library.is_open()) {
      throw Error(ErrorCode::kDevice,
                  "[device] cuBLASLt cannot be opened (" + library.failures() +
                      "); install the CUDA toolkit's libraries, or name their folder in "
                      "PUSHPULL_CUDA_LIBS");
    }
    PUSHPULL_CUBLASLT(PUSHPULL_FIND)
  }

  template <class Function>
  void find(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(library.find(name));
    if (function == nullptr) {
      throw Error(ErrorCode::kDevice, "[device] " + library.path() + " has no " + name +
                                          "; this program is built for cuBLASLt " +
                                          std::to_string(CUBLAS_VER_MAJOR) + "." +
                                          std::to_string(CUBLAS_VER_MINOR));
    }
  }
};

// Neither caches a failure (the initialiser throws): the next call tries again.
const Opened& opened() {
  static const Opened all;
  return all;
}

struct OpenedBatches {
  CublasLtBatches functions;

  OpenedBatches() {
    const auto find = [](auto& function, const char* name) { opened().find(function, name); };
    PUSHPULL_CUBLASLT_BATCHES(PUSHPULL_FIND)
  }
};

#undef PUSHPULL_FIND

}  // namespace

const CublasLt& cublas_lt() { return opened().functions; }
const CublasLtBatches& cublas_lt_batches() {
  static const OpenedBatches all;
  return all.functions;
}
const std::string& cublas_lt_path() { return opened().library.path(); }

}  // namespace pushpull::device
