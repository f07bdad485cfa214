// Prints the pixels of image files as a job has them, for image_pil_test.py: image_pixels CxHxW FILE...
#include <cstdint>
#include <iostream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "common/io/file.h"
#include "datasets/image_file.h"
#include "datasets/image_fit.h"

int main(int argc, char** argv) {
  using namespace pushpull;
  constexpr int kSkipped = 77;
  if (argc < 2) return 2;
  std::string why;
  if (!can_decode_images(why)) {
    std::cerr << why << "\n";
    return kSkipped;
  }
  InputShape shape;
  char by = 0;
  std::istringstream(argv[1]) >> shape.channels >> by >> shape.height >> by >> shape.width;
  for (int i = 2; i < argc; ++i) {
    InputFile file(argv[i]);
    std::vector<std::byte> bytes(file.size_bytes());
    file.read(bytes);
    const std::vector<uint8_t> pixels = fit_image(decode_image(bytes, argv[i]), shape);
    std::cout.write(reinterpret_cast<const char*>(pixels.data()), std::ssize(pixels));
  }
  return 0;
}
