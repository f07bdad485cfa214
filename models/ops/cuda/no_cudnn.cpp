// Replaces convolution_cudnn.cpp and cudnn_library.cpp if the build found no cudnn.h.
#include "models/ops/cuda/convolution.h"

namespace pushpull::ops::cuda {

std::unique_ptr<Operation> make_cudnn_convolution(Shared& /*shared*/,
                                                  const ConvolutionShape& /*shape*/,
                                                  const std::string& /*key*/) {
  return nullptr;
}

std::string cudnn_version(const Shared& /*shared*/) { return {}; }

}  // namespace pushpull::ops::cuda
