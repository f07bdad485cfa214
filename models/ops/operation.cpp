#include "models/ops/operation.h"

#include "common/base/error.h"

namespace pushpull::ops {

int64_t Shape::size() const {
  int64_t product = 1;
  for (const int64_t size : sizes_) product *= size;
  return product;
}

std::string Shape::text() const {
  std::string out;
  for (const int64_t size : sizes_) out += (out.empty() ? "" : "x") + std::to_string(size);
  return out;
}

ValueType activation(Shape shape) {
  return {Element::kActivation, Layout::kPlain, std::move(shape)};
}

ValueType native_image(const ImageShape& image) {
  return {Element::kActivation,
          Layout::kNative,
          {image.samples, image.channels, image.height, image.width}};
}

ImageShape image_of(const ValueType& type) {
  PP_ASSERT(type.shape.rank() == 4);
  return {type.shape[0], type.shape[1], type.shape[2], type.shape[3]};
}

size_t floats_of(const Backend& backend, const ValueType& type) {
  if (type.layout == Layout::kNative) return backend.image_floats(image_of(type), Layout::kNative);
  const bool is_activation = type.element == Element::kActivation;
  const size_t bytes = is_activation ? backend.activation_bytes() : sizeof(float);
  return (static_cast<size_t>(type.shape.size()) * bytes + sizeof(float) - 1) / sizeof(float);
}

void require(bool holds, const std::string& node, const std::string& what) {
  if (!holds) throw Error(ErrorCode::kUsage, "[models] " + node + " " + what);
}

void require_size(const std::string& node, const std::string& what, int64_t a, int64_t b) {
  if (a > 0 && b > 0 && a <= INT32_MAX / b) return;
  throw Error(ErrorCode::kUsage, "[models] " + node + "'s " + what + " would have " +
                                     std::to_string(a) + " x " + std::to_string(b) +
                                     " elements; from 1 to 2^31 - 1 are possible: lower "
                                     "micro-batch or the model's sizes");
}

void require_input(const std::string& node, const ValueType& input, const ValueType& expected) {
  require(input == expected, node,
          "has an input of " + input.shape.text() + ", but needs " + expected.shape.text());
}

}  // namespace pushpull::ops
