// A dataset held in memory as bytes and converted to f32 when read. Constant after construction;
// thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "datasets/dataset.h"

namespace pushpull {

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

  int64_t train_size() const override { return std::ssize(train_.labels); }
  int64_t test_size() const override { return std::ssize(test_.labels); }
  InputShape input() const override { return input_; }
  int64_t classes() const override { return classes_; }
  const std::string& digest() const override { return digest_; }
  void read_train(std::span<const int64_t> indices, float* images, int32_t* labels) const override {
    read(train_, indices, images, labels);
  }
  void read_test(std::span<const int64_t> indices, float* images, int32_t* labels) const override {
    read(test_, indices, images, labels);
  }

 private:
  void read(const ImageSplit& split, std::span<const int64_t> indices, float* images,
            int32_t* labels) const;

  ImageSplit train_;
  ImageSplit test_;
  InputShape input_;
  int64_t classes_;
  float white_;
  std::string digest_;
};

}  // namespace pushpull
