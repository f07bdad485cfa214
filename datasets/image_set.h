// Images: a data set in memory, and the ones that are read into it, CIFAR-10 and folders of IDX
// files.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "datasets/dataset.h"

namespace pushpull {

// A dataset held in memory as bytes and converted to f32 when read. Constant after construction;
// thread-safe.
struct ImageSplit {
  std::vector<uint8_t> pixels;  // [labels.size(), C, H, W]
  std::vector<uint8_t> labels;
};

class ImageSet final : public Dataset {
 public:
  // white: the byte that becomes 1.0.
  // classes: every label is below it.
  ImageSet(ImageSplit train, ImageSplit test, const InputShape& input, int64_t classes,
           float white);

  int64_t size(Split split) const override { return std::ssize(samples_of(split).labels); }
  const FieldTable& fields() const override { return fields_; }
  const std::string& digest() const override { return digest_; }
  void read(const Request& request, float* block) const override;

 private:
  const ImageSplit& samples_of(Split split) const {
    return split == Split::kTrain ? train_ : test_;
  }

  ImageSplit train_;
  ImageSplit test_;
  FieldTable fields_;
  float white_;
  std::string digest_;
};

// `cifar10`: the binary files of CIFAR-10 (https://www.cs.toronto.edu/~kriz/cifar.html): 32x32
// images of three colours in ten classes. Any thread.

// Opens data_batch_1.bin to data_batch_5.bin, which train, and test_batch.bin in `dir`. A record is
// the label, a byte from 0 to 9, then 3 x 32 x 32 bytes: red, green, blue, each row by row. A file has
// any number of records. Called by open_dataset. Throws Error(kData), which names the file, the
// record and the problem, and Error(kUsage) if train-samples or test-samples exceed the files.
std::unique_ptr<Dataset> open_cifar10(const Job& job, const std::string& dir);

// Datasets stored as a folder of four IDX files: MNIST and its relatives, and `digits`. Called by
// open_dataset. Thread-safe.

// Opens train-images, train-labels, t10k-images and t10k-labels in `dir`. Their names end in
// -idx3-ubyte (labels: idx1; images with channels: idx4) or .idx3-ubyte, optionally with .gz; if
// several exist, the plain file is read. Images are N x H x W or N x C x H x W; the number of
// classes is the largest label of the whole training split + 1. Throws Error(kData) naming the file
// and the problem, and Error(kUsage) if train-samples or test-samples exceed the file.
std::unique_ptr<Dataset> open_idx(const Job& job, const std::string& dir);

// The same for pixels 0..16.
std::unique_ptr<Dataset> open_digits(const Job& job, const std::string& dir);

}  // namespace pushpull
