// Selects the implementation of a convolution: cuDNN if available, or else im2col.
#include "models/ops/convolution.h"

#include "models/ops/cuda/convolution.h"
#include "models/ops/cuda/makers.h"
#include "models/ops/cuda/shared.h"

namespace pushpull::ops::cuda {

namespace {

constexpr const char* kIm2col = "im2col";

// "convolution/100x16x14x14/o32k5p2", with "s2" for a stride of 2 and "/first" if no gradient of x
// is needed.
std::string key_of(const ConvolutionShape& shape) {
  std::string key = "convolution";
  char before = '/';
  for (const int64_t size :
       {shape.input.samples, shape.input.channels, shape.input.height, shape.input.width}) {
    key += before + std::to_string(size);
    before = 'x';
  }
  key += "/o" + std::to_string(shape.outputs) + "k" + std::to_string(shape.kernel) + "p" +
         std::to_string(shape.padding);
  if (shape.stride != 1) key += "s" + std::to_string(shape.stride);
  return shape.input_gradient ? key : key + "/first";
}

}  // namespace

std::unique_ptr<Operation> make_convolution(Shared& shared, const Spec& spec) {
  const ConvolutionShape& shape = spec_as<ConvolutionSpec>(spec).shape();
  const std::string key = key_of(shape);
  const std::string* const value = chosen(shared, key);
  if (value == nullptr || *value != kIm2col) {
    if (auto made = make_cudnn_convolution(shared, shape, key)) return made;
    if (value != nullptr) refuse_choice(shared, key, *value, "needs cuDNN, which is not available");
  }
  shared.made.set(key, kIm2col);
  return make_im2col_convolution(shared, shape);
}

}  // namespace pushpull::ops::cuda
