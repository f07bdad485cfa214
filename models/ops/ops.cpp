#include "models/ops/ops.h"

#include <array>
#include <utility>

#include "common/base/error.h"
#include "models/ops/operation.h"

namespace pushpull::ops {

namespace {

// Kernels count elements in 32 bits; models/layers.cpp rejects larger tensors with a message.
constexpr int64_t kMaxElements = INT32_MAX;

bool fits(int64_t a, int64_t b) { return a > 0 && b > 0 && a <= kMaxElements / b; }

bool is_image(const ImageShape& shape) {
  return fits(shape.height, shape.width) && fits(shape.channels, shape.height * shape.width) &&
         fits(shape.samples, shape.channels * shape.height * shape.width);
}

// Returns how many windows of `kernel` elements fit on a side with `padding` more at both ends.
int64_t windows(int64_t side, int64_t kernel, int64_t padding, int64_t stride) {
  const int64_t last = side + 2 * padding - kernel;
  return last < 0 ? 0 : last / stride + 1;
}

constexpr std::array kPrecisions{
    std::pair{"fp32", Precision::kFp32}, std::pair{"tf32", Precision::kTf32},
    std::pair{"bf16", Precision::kBf16}, std::pair{"fp16", Precision::kFp16}};

}  // namespace

const char* to_string(Precision precision) {
  for (const auto& [name, value] : kPrecisions) {
    if (value == precision) return name;
  }
  return "unknown";
}

Precision parse_precision(const std::string& text) {
  for (const auto& [name, value] : kPrecisions) {
    if (text == name) return value;
  }
  throw Error(ErrorCode::kUsage,
              "[models] unknown precision '" + text + "'; there are fp32, tf32, bf16 and fp16");
}

void check_labels(const CrossEntropyShape& shape, std::span<const int32_t> labels) {
  PP_ASSERT(labels.size() <= static_cast<size_t>(shape.samples));
  for (const int32_t label : labels) PP_ASSERT(label >= 0 && label < shape.classes);
}

device::Stream& Backend::stream() {
  assertion_failed("a backend without a device is asked for its stream", __FILE__, __LINE__);
}

std::string Backend::device_name() const { return device() ? device()->name() : "cpu"; }

std::unique_ptr<Operation> Backend::plan(const Spec& spec) {
  throw Error(ErrorCode::kUsage, std::string("[models] ") + spec.name() + " has no kernel on " +
                                     device_name() + " yet; start workers with --device cpu");
}

std::unique_ptr<Backend> make_backend(const BackendOptions& options) {
  if (options.device.kind == device::DeviceName::kCuda) return make_cuda_backend(options);
  return make_cpu_backend(options.threads, options.precision);
}

ImageShape ConvolutionShape::output() const {
  return {input.samples, outputs, windows(input.height, kernel, padding, stride),
          windows(input.width, kernel, padding, stride)};
}

ImageShape MaxPoolShape::output() const {
  return {image.samples, image.channels, windows(image.height, kernel, padding, stride),
          windows(image.width, kernel, padding, stride)};
}

std::unique_ptr<Linear> make_linear(Backend& backend, const LinearShape& shape) {
  PP_ASSERT(fits(shape.samples, shape.inputs));
  PP_ASSERT(fits(shape.samples, shape.outputs));
  PP_ASSERT(fits(shape.outputs, shape.inputs));
  const Backend::Scope scope(backend);
  return backend.linear(shape);
}

std::unique_ptr<Convolution> make_convolution(Backend& backend, const ConvolutionShape& shape) {
  PP_ASSERT(is_image(shape.input));
  PP_ASSERT(shape.stride > 0);
  PP_ASSERT(is_image(shape.output()));
  PP_ASSERT(shape.kernel > 0 && shape.padding >= 0 && shape.padding < shape.kernel);
  PP_ASSERT(!shape.input_gradient || shape.input_layout == Layout::kNative);
  const Backend::Scope scope(backend);
  return backend.convolution(shape);
}

std::unique_ptr<BatchNorm> make_batch_norm(Backend& backend, const BatchNormShape& shape) {
  PP_ASSERT(is_image(shape.image));
  // one value has no unbiased variance
  PP_ASSERT(shape.image.samples * shape.image.height * shape.image.width > 1);
  PP_ASSERT(shape.epsilon > 0.0F);
  const Backend::Scope scope(backend);
  return backend.batch_norm(shape);
}

std::unique_ptr<MaxPool> make_max_pool(Backend& backend, const MaxPoolShape& shape) {
  PP_ASSERT(is_image(shape.image));
  PP_ASSERT(shape.kernel > 0 && shape.stride > 0 && 2 * shape.padding <= shape.kernel);
  PP_ASSERT(is_image(shape.output()));
  const Backend::Scope scope(backend);
  return backend.max_pool(shape);
}

std::unique_ptr<Relayout> make_relayout(Backend& backend, const ImageShape& shape) {
  PP_ASSERT(is_image(shape));
  const Backend::Scope scope(backend);
  return backend.relayout(shape);
}

std::unique_ptr<Elements> make_elements(Backend& backend, int64_t count) {
  PP_ASSERT(fits(count, 1));
  const Backend::Scope scope(backend);
  return backend.elements(count);
}

std::unique_ptr<CrossEntropy> make_cross_entropy(Backend& backend, const CrossEntropyShape& shape) {
  PP_ASSERT(fits(shape.samples, shape.classes));
  const Backend::Scope scope(backend);
  return backend.cross_entropy(shape);
}

}  // namespace pushpull::ops
