// Replaces image_file.cpp in a build without libpng and libjpeg.
#include "common/base/error.h"
#include "datasets/image_file.h"

namespace pushpull {

bool can_decode_images(std::string& why) {
  why =
      "this program was built without libpng and libjpeg; install libpng-dev and libjpeg-dev and "
      "build it again, or write the images in MNIST's format (dataset = idx)";
  return false;
}

ByteImage decode_image(std::span<const std::byte> /*file*/, const std::string& name) {
  std::string why;
  can_decode_images(why);
  throw Error(ErrorCode::kData, "[data] " + name + ": " + why);
}

}  // namespace pushpull
