// Makers of the CUDA operations, one file each; cuda_backend.cpp hands them out. Shapes are checked
// by models/ops/ops.cpp. `shared` outlives what they return. Images are plain NCHW in either
// Layout.
#pragma once

#include <memory>
#include <string>

#include "models/ops/cuda/shared.h"
#include "models/ops/ops.h"

namespace pushpull::ops::cuda {

std::unique_ptr<Linear> make_linear(Shared& shared, const LinearShape& shape);

// cuDNN where it is there and has a deterministic algorithm for the shape, else im2col.
std::unique_ptr<Convolution> make_convolution(Shared& shared, const ConvolutionShape& shape);
// Null: not to be had.
//   key: of its choice.
std::unique_ptr<Convolution> make_cudnn_convolution(Shared& shared, const ConvolutionShape& shape,
                                                    const std::string& key);
std::unique_ptr<Convolution> make_im2col_convolution(Shared& shared, const ConvolutionShape& shape);

std::unique_ptr<BatchNorm> make_batch_norm(Shared& shared, const BatchNormShape& shape);
std::unique_ptr<MaxPool> make_max_pool(Shared& shared, const MaxPoolShape& shape);
std::unique_ptr<Relayout> make_relayout(Shared& shared, const ImageShape& shape);
std::unique_ptr<Elements> make_elements(Shared& shared, int64_t count);
std::unique_ptr<CrossEntropy> make_cross_entropy(Shared& shared, const CrossEntropyShape& shape);

// "9.19.0" of the cuDNN that convolutions use here, "" where there are none or they use none.
std::string cudnn_version(const Shared& shared);

}  // namespace pushpull::ops::cuda
