#include "datasets/image_set.h"

#include <utility>

#include "common/base/error.h"
#include "datasets/digest.h"

namespace pushpull {

ImageSet::ImageSet(ImageSplit train, ImageSplit test, const InputShape& input, int64_t classes,
                   float white)
    : train_(std::move(train)),
      test_(std::move(test)),
      fields_(image_fields({input.channels, input.height, input.width}, classes)),
      white_(white) {
  Digest digest;
  for (const ImageSplit* split : {&train_, &test_}) {
    PP_ASSERT(split->pixels.size() == split->labels.size() * static_cast<size_t>(input.size()));
    for (const int64_t size : {std::ssize(split->labels), input.channels, input.height, input.width,
                               classes, static_cast<int64_t>(white_)}) {
      digest.add(std::to_string(size));
    }
    digest.add(std::as_bytes(std::span(split->labels)));
    digest.add(std::as_bytes(std::span(split->pixels)));
  }
  digest_ = digest.hex();
}

void ImageSet::read(const Request& request, float* block) const {
  const ImageSplit& split = samples_of(request.split);
  float* images = block + request.layout.offset(0);
  int32_t* labels = as_ints(block + request.layout.offset(1));
  const int64_t size = fields_.fields[0].size();
  // divided, not multiplied by 1/white: gives the same bits as PyTorch's ToTensor
  const float white = white_;
  for (size_t k = 0; k < request.indices.size(); ++k) {
    const int64_t sample = request.indices[k];
    PP_ASSERT(sample >= 0 && sample < std::ssize(split.labels));
    labels[k] = split.labels[static_cast<size_t>(sample)];
    const uint8_t* pixels = split.pixels.data() + sample * size;
    float* image = images + static_cast<int64_t>(k) * size;
    for (int64_t i = 0; i < size; ++i) image[i] = static_cast<float>(pixels[i]) / white;
  }
}

}  // namespace pushpull
