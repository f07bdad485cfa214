// Image files, PNG and JPEG, decoded by libpng and libjpeg. A build without these libraries has
// no_image_file.cpp. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pushpull {

struct ByteImage {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;         // 1: grey, 3: red, green, blue
  std::vector<uint8_t> pixels;  // [height, width, channels]
};

// Larger images are refused before memory is allocated for them.
inline constexpr int64_t kMaxImageSide = 65'500;  // JPEG's own limit
inline constexpr int64_t kMaxImagePixels = int64_t{1} << 26;
inline constexpr int64_t kMaxImageFileBytes = int64_t{1} << 28;

// Returns whether this program can decode images; if not, `why` gets the reason and the way out.
bool can_decode_images(std::string& why);

// Returns the image in the bytes of a file. PNG: palettes become colours, fewer than 8 bits are
// scaled to 8, of 16 bits the upper 8 are taken, transparency is dropped; gamma and profiles have no
// effect. JPEG: grey or colour; libjpeg's exact integer transform, which has the same bits in each
// version of libjpeg-turbo; the orientation of EXIF has no effect. So an image has the bytes that PIL
// gives.
//   name: of the file, for messages.
// Throws Error(kData) with one line: other formats, CMYK, more than the limits above, damaged files.
ByteImage decode_image(std::span<const std::byte> file, const std::string& name);

}  // namespace pushpull
