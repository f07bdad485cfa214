// An image in the shape that a job asks for: colours, size, crop. Integer arithmetic, so each machine
// gets the same bytes. Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/job/job.h"
#include "datasets/image_file.h"

namespace pushpull {

// Returns the pixels of the image as `shape` has them, [channels, height, width]; its channels are 1 or
// 3. The steps, each as in PIL, to the same bytes:
//   1. Colours become grey by (19595 R + 38470 G + 7471 B + 2^15) >> 16; grey becomes three equal
//      colours.
//   2. The image is resized so that it just covers the shape: the side that fits first gets its length,
//      the other one keeps the ratio, rounded down. The filter is bilinear with antialiasing
//      (Image.BILINEAR: a triangle as wide as the scale), first along rows, then along columns, 8 bits in
//      between. (PIL 13 takes columns first where that is cheaper, so that bytes may differ by one.)
//   3. The middle is cut out; an odd rest is divided with round half to even.
// For a square shape this is torchvision's Resize(side), CenterCrop(side).
std::vector<uint8_t> fit_image(const ByteImage& image, const InputShape& shape);

}  // namespace pushpull
