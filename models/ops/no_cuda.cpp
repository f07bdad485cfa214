// Replaces models/ops/cuda if the build found no CUDA toolkit.
#include "common/base/error.h"
#include "models/ops/ops.h"

namespace pushpull::ops {

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) {
  throw Error(ErrorCode::kDevice, "[models] " + options.device.to_string() +
                                      " is requested, but this build has no CUDA support; build it "
                                      "where nvcc is found, or use --device cpu");
}

}  // namespace pushpull::ops
