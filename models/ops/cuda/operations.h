// Factories of the CUDA operations, one file each; called by the backend. models/ops/ops.cpp
// has checked the shapes. `shared` outlives the results. Images are plain NCHW in either Layout.
// Used on the backend's thread.
#pragma once

#include <memory>
#include <string>

#include "models/ops/cuda/shared.h"
#include "models/ops/ops.h"

namespace pushpull::ops::cuda {

std::unique_ptr<Linear> make_linear(Shared& shared, const LinearShape& shape);

// Uses cuDNN if it is available and has a deterministic algorithm for the shape, or else im2col.
std::unique_ptr<Convolution> make_convolution(Shared& shared, const ConvolutionShape& shape);
// Returns null if cuDNN is not available or has no such algorithm.
//   key: of its entry in Choices.
std::unique_ptr<Convolution> make_cudnn_convolution(Shared& shared, const ConvolutionShape& shape,
                                                    const std::string& key);
std::unique_ptr<Convolution> make_im2col_convolution(Shared& shared, const ConvolutionShape& shape);

std::unique_ptr<BatchNorm> make_batch_norm(Shared& shared, const BatchNormShape& shape);
std::unique_ptr<MaxPool> make_max_pool(Shared& shared, const MaxPoolShape& shape);
std::unique_ptr<Relayout> make_relayout(Shared& shared, const ImageShape& shape);
std::unique_ptr<Elements> make_elements(Shared& shared, int64_t count);
std::unique_ptr<CrossEntropy> make_cross_entropy(Shared& shared, const CrossEntropyShape& shape);

// Returns the version of the cuDNN that convolutions use, such as "9.19.0"; "" if there is none.
std::string cudnn_version(const Shared& shared);

}  // namespace pushpull::ops::cuda
