// `cifar10`: the binary files of CIFAR-10 (https://www.cs.toronto.edu/~kriz/cifar.html): 32x32
// images of three colours in ten classes. Any thread.
#pragma once

#include <memory>
#include <string>

#include "datasets/dataset.h"

namespace pushpull {

// Opens data_batch_1.bin to data_batch_5.bin, which train, and test_batch.bin in `dir`. A record is
// the label, a byte from 0 to 9, then 3 x 32 x 32 bytes: red, green, blue, each row by row. A file has
// any number of records. Called by open_dataset. Throws Error(kData), which names the file, the
// record and the problem, and Error(kUsage) if train-samples or test-samples exceed the files.
std::unique_ptr<Dataset> open_cifar10(const Job& job, const std::string& dir);

}  // namespace pushpull
