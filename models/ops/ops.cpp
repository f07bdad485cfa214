#include "models/ops/ops.h"

#include <array>
#include <utility>

#include "common/base/error.h"
#include "models/ops/operation.h"

namespace pushpull::ops {

namespace {

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

ImageShape ImageShape::windows(int64_t kernel, int64_t padding, int64_t stride) const {
  const auto on_side = [&](int64_t side) {
    const int64_t last = side + 2 * padding - kernel;
    return last < 0 ? 0 : last / stride + 1;
  };
  return {samples, channels, on_side(height), on_side(width)};
}

}  // namespace pushpull::ops
