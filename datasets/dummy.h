// `dummy`: generated images that can be learned, so that a run needs no data and its loss must
// fall. Constant after construction; thread-safe.
//
// Each class has a *pattern*: a coarse grid of random numbers, stretched over the image. A sample
// is its class's pattern plus uniform noise, a pure function of (seed, sample). Larger images have
// weaker patterns, so that every shape is about equally hard.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "datasets/dataset.h"

namespace pushpull {

class Dummy final : public Dataset {
 public:
  // Reads input, classes, seed, train_samples (default: 4096) and test_samples (default: 1024) of
  // the job. Throws Error(kUsage), which names the key that does not fit.
  explicit Dummy(const Job& job);

  int64_t size(Split split) const override {
    return split == Split::kTrain ? sizes_.train : sizes_.test;
  }
  const FieldTable& fields() const override { return fields_; }
  const std::string& digest() const override { return digest_; }
  void read(const Request& request, float* block) const override;

 private:
  // One cell of the pattern covers a run of pixels in a row.
  struct Grid {
    int64_t channels;
    int64_t height;
    int64_t width;
    int64_t size() const { return channels * height * width; }
  };

  void make_patterns();
  void make_cache();
  int32_t label_of(uint32_t sample) const;
  void make_sample(uint32_t sample, float* image, int32_t* label) const;

  uint64_t seed_;
  InputShape input_;
  int64_t classes_;
  FieldTable fields_;
  GeneratedSizes sizes_;
  std::string digest_;
  Grid grid_;
  float noise_share_ = 0.0F;
  std::vector<float> patterns_;      // [classes, grid], each in ±pattern share / 2
  std::vector<float> cache_images_;  // [samples, C, H, W]; empty if too large
  std::vector<int32_t> cache_labels_;
};

}  // namespace pushpull
