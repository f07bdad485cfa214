// libFuzzer's entry to the decoders of image files, and to what makes an image fit.
#include <cstddef>
#include <cstdint>
#include <span>

#include "datasets/image_file.h"
#include "datasets/image_fit.h"
#include "tests/fuzz/fuzzed.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pushpull;
  may_refuse(ErrorCode::kData, [&] {
    const ByteImage image = decode_image(std::as_bytes(std::span(data, size)), "fuzzed");
    require(image.height > 0 && image.width > 0 && image.height <= kMaxImageSide &&
                image.width <= kMaxImageSide && image.height * image.width <= kMaxImagePixels,
            "an image of another size than allowed");
    require(image.channels == 1 || image.channels == 3, "other channels than 1 or 3");
    require(std::ssize(image.pixels) == image.height * image.width * image.channels,
            "other bytes than pixels");
    const InputShape shape{3, 5, 7};
    require(std::ssize(fit_image(image, shape)) == shape.size(), "it does not fit");
  });
  return 0;
}
