#include "datasets/image_set.h"

#include <utility>

#include "common/base/error.h"
#include "datasets/digest.h"

namespace pushpull {

ImageSet::ImageSet(ImageSplit train, ImageSplit test, const InputShape& input, int64_t classes,
                   float white)
    : train_(std::move(train)),
      test_(std::move(test)),
      input_(input),
      classes_(classes),
      white_(white) {
  Digest digest;
  for (const ImageSplit* split : {&train_, &test_}) {
    PP_ASSERT(split->pixels.size() == split->labels.size() * static_cast<size_t>(input_.size()));
    for (const int64_t size : {std::ssize(split->labels), input_.channels, input_.height,
                               input_.width, classes_, static_cast<int64_t>(white_)}) {
      digest.add(std::to_string(size));
    }
    digest.add(std::as_bytes(std::span(split->labels)));
    digest.add(std::as_bytes(std::span(split->pixels)));
  }
  digest_ = digest.hex();
}

void ImageSet::read(const ImageSplit& split, std::span<const int64_t> indices, float* images,
                    int32_t* labels) const {
  const int64_t size = input_.size();
  // divided, not multiplied by 1/white: gives the same bits as PyTorch's ToTensor
  const float white = white_;
  for (size_t k = 0; k < indices.size(); ++k) {
    const int64_t sample = indices[k];
    PP_ASSERT(sample >= 0 && sample < std::ssize(split.labels));
    labels[k] = split.labels[static_cast<size_t>(sample)];
    const uint8_t* pixels = split.pixels.data() + sample * size;
    float* image = images + static_cast<int64_t>(k) * size;
    for (int64_t i = 0; i < size; ++i) image[i] = static_cast<float>(pixels[i]) / white;
  }
}

}  // namespace pushpull
