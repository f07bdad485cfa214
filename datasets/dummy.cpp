#include "datasets/dummy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "common/base/error.h"
#include "common/base/random.h"
#include "datasets/digest.h"

namespace pushpull {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 28;
constexpr int64_t kMaxClasses = 65536;
// Limits of a pattern's grid: at most 16 KiB per class.
constexpr int64_t kGridChannels = 64;
constexpr int64_t kGridSide = 8;
// Generating noise costs more than copying, so a small training split is generated once.
constexpr int64_t kCacheBytes = int64_t{64} << 20;
// Distance of two patterns, in standard deviations of the noise along their difference: about one
// sample in a hundred is closer to one of the nine wrong classes.
constexpr double kSeparation = 6.0;
constexpr double kLargestShare = 0.5;

int64_t checked(const char* key, int64_t value, int64_t least, int64_t most) {
  return check_generated("dummy", key, value, least, most);
}

InputShape checked(const InputShape& input) {
  checked("input", input.channels, 1, kMaxElements);
  checked("input", input.height, 1, kMaxElements / input.channels);
  checked("input", input.width, 1, kMaxElements / input.channels / input.height);
  return input;
}

}  // namespace

Dummy::Dummy(const Job& job)
    : seed_(job.seed),
      input_(checked(job.input)),
      classes_(checked("classes", job.classes, 2, kMaxClasses)),
      fields_(image_fields({input_.channels, input_.height, input_.width}, classes_)),
      sizes_(generated_sizes("dummy", job)),
      grid_{std::min(kGridChannels, input_.channels), std::min(kGridSide, input_.height),
            std::min(kGridSide, input_.width)} {
  Digest digest;
  digest.add(std::string("dummy 1"));  // raise the number when the samples change
  digest.add(std::to_string(seed_));
  for (const int64_t value :
       {input_.channels, input_.height, input_.width, classes_, sizes_.train, sizes_.test}) {
    digest.add(std::to_string(value));
  }
  digest_ = digest.hex();
  make_patterns();
  make_cache();
}

void Dummy::make_patterns() {
  // Two patterns differ by share * sqrt(2 size v). The noise along that line has the standard
  // deviation (1 - share) * sqrt(v), where v = 1/12 is the variance of U(-0.5, 0.5). Solved for
  // their ratio:
  const double odds = kSeparation / std::sqrt(2.0 * static_cast<double>(input_.size()));
  const double share = std::min(odds / (1.0 + odds), kLargestShare);
  noise_share_ = static_cast<float>(1.0 - share);
  const auto cells = static_cast<uint64_t>(grid_.size());
  patterns_.resize(static_cast<size_t>(classes_) * cells);
  for (int64_t k = 0; k < classes_; ++k) {
    fill_uniform(seed_, RandomStream::kDummyTeacher, static_cast<uint32_t>(k), 0,
                 static_cast<float>(share / 2.0), cells,
                 patterns_.data() + static_cast<uint64_t>(k) * cells);
  }
}

void Dummy::make_cache() {
  const auto sample_bytes = static_cast<int64_t>(sizeof(float)) * input_.size();
  if (sizes_.train > kCacheBytes / sample_bytes) return;
  std::vector<float> images(static_cast<size_t>(sizes_.train * input_.size()));
  std::vector<int32_t> labels(static_cast<size_t>(sizes_.train));
  for (int64_t n = 0; n < sizes_.train; ++n) {
    make_sample(static_cast<uint32_t>(n), images.data() + n * input_.size(), &labels[n]);
  }
  cache_images_ = std::move(images);
  cache_labels_ = std::move(labels);
}

int32_t Dummy::label_of(uint32_t sample) const {
  // the random number after those of the pixels
  const uint32_t word =
      philox(seed_, RandomStream::kDummyData, sample, static_cast<uint64_t>(input_.size()))[0];
  return static_cast<int32_t>((uint64_t{word} * static_cast<uint64_t>(classes_)) >> 32);
}

void Dummy::make_sample(uint32_t sample, float* image, int32_t* label) const {
  *label = label_of(sample);
  fill_uniform(seed_, RandomStream::kDummyData, sample, 0, noise_share_ / 2.0F,
               static_cast<uint64_t>(input_.size()), image);
  const float* pattern = patterns_.data() + *label * grid_.size();
  for (int64_t c = 0; c < input_.channels; ++c) {
    for (int64_t y = 0; y < input_.height; ++y) {
      const int64_t row =
          (c % grid_.channels * grid_.height + y * grid_.height / input_.height) * grid_.width;
      // cell by cell, so that the inner loop adds a constant
      for (int64_t g = 0; g < grid_.width; ++g) {
        const float level = 0.5F + pattern[row + g];
        const int64_t begin = g * input_.width / grid_.width;
        const int64_t end = (g + 1) * input_.width / grid_.width;
        for (int64_t x = begin; x < end; ++x) image[x] = std::clamp(image[x] + level, 0.0F, 1.0F);
      }
      image += input_.width;
    }
  }
}

void Dummy::read(const Request& request, float* block) const {
  float* image = block + request.layout.offset(0);
  int32_t* label = as_ints(block + request.layout.offset(1));
  const bool train = request.split == Split::kTrain;
  for (const int64_t sample : request.indices) {
    PP_ASSERT(sample >= 0 && sample < size(request.split));
    if (!train || cache_labels_.empty()) {
      make_sample(generated_number(request.split, sample), image, label);
    } else {
      std::copy_n(cache_images_.data() + sample * input_.size(), input_.size(), image);
      *label = cache_labels_[static_cast<size_t>(sample)];
    }
    image += input_.size();
    ++label;
  }
}

}  // namespace pushpull
