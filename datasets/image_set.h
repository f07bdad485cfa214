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

}  // namespace pushpull
