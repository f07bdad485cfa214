// The datasets that are folders of four IDX files: MNIST and its relatives, and `digits`. Called by
// open_dataset; any thread.
#pragma once

#include <memory>
#include <string>

#include "datasets/dataset.h"

namespace pushpull {

// `dir` holds train-images, train-labels, t10k-images and t10k-labels, each with the ending
// -idx3-ubyte (labels: idx1; images with channels: idx4) or .idx3-ubyte, plain or with .gz; where
// there are several, the plain one is read. Images are N x H x W or N x C x H x W; classes = the
// largest label of the whole training split + 1. Throws Error(kData) naming the file and what does
// not fit, Error(kUsage) where train-samples or test-samples are more than there are.
std::unique_ptr<Dataset> open_idx(const Job& job, const std::string& dir);

// The same with pixels 0..16.
std::unique_ptr<Dataset> open_digits(const Job& job, const std::string& dir);

}  // namespace pushpull
