// Datasets stored as a folder of four IDX files: MNIST and its relatives, and `digits`. Called by
// open_dataset. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "datasets/dataset.h"

namespace pushpull {

// Opens train-images, train-labels, t10k-images and t10k-labels in `dir`. Their names end in
// -idx3-ubyte (labels: idx1; images with channels: idx4) or .idx3-ubyte, optionally with .gz; if
// several exist, the plain file is read. Images are N x H x W or N x C x H x W; the number of
// classes is the largest label of the whole training split + 1. Throws Error(kData) naming the file
// and the problem, and Error(kUsage) if train-samples or test-samples exceed the file.
std::unique_ptr<Dataset> open_idx(const Job& job, const std::string& dir);

// The same for pixels 0..16.
std::unique_ptr<Dataset> open_digits(const Job& job, const std::string& dir);

}  // namespace pushpull
