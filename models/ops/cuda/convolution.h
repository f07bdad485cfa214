// The implementations of a convolution on CUDA: by cuDNN, and by products over unrolled images.
// Images are plain NCHW in either Layout. Used on the backend's thread.
#pragma once

#include <memory>
#include <string>

#include "models/ops/convolution.h"
#include "models/ops/cuda/shared.h"

namespace pushpull::ops::cuda {

// Returns null if cuDNN is not available or has no deterministic algorithm for the shape.
//   key: of its entry in Choices.
std::unique_ptr<Operation> make_cudnn_convolution(Shared& shared, const ConvolutionShape& shape,
                                                  const std::string& key);
std::unique_ptr<Operation> make_im2col_convolution(Shared& shared, const ConvolutionShape& shape);

// Returns the version of the cuDNN that convolutions use, such as "9.19.0"; "" if there is none.
std::string cudnn_version(const Shared& shared);

}  // namespace pushpull::ops::cuda
