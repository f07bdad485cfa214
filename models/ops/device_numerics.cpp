#include "models/ops/device_numerics.h"

#include <algorithm>
#include <charconv>

namespace pushpull::ops {

namespace {

// word: "90-real", "90-virtual", "90", "90a-real", "native".
bool fits(std::string_view word, int major, int minor) {
  if (word.ends_with("-virtual")) return false;
  int number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc()) return true;
  const bool is_exact = end != word.data() + word.size() && *end == 'a';
  if (is_exact) return number == 10 * major + minor;
  return number / 10 == major && number % 10 <= minor;
}

}  // namespace

std::string to_string(const DeviceNumerics& numerics) {
  const auto text = [](auto value) { return std::to_string(value); };
  const auto version = [&](int number) {
    return text(number / 1000) + "." + text(number % 1000 / 10);
  };
  const size_t lt = numerics.cublas_lt;
  return "cuda " + numerics.device + " sm_" + text(numerics.major) + text(numerics.minor) +
         (numerics.ptx_driver == 0 ? "" : " ptx by driver " + version(numerics.ptx_driver)) +
         " runtime " + version(numerics.runtime) + " cuBLASLt " + text(lt / 10000) + "." +
         text(lt / 100 % 100) + "." + text(lt % 100) +
         (numerics.cudnn.empty() ? " no cuDNN" : " cuDNN " + numerics.cudnn) + " " +
         to_string(numerics.precision) + " loss-scale " +
         text(static_cast<int64_t>(numerics.loss_scale));
}

bool has_machine_code(std::string_view architectures, int major, int minor) {
  constexpr std::string_view kBetween = ", ;";
  while (!architectures.empty()) {
    const size_t end = std::min(architectures.find_first_of(kBetween), architectures.size());
    if (end > 0 && fits(architectures.substr(0, end), major, minor)) return true;
    architectures.remove_prefix(std::min(end + 1, architectures.size()));
  }
  return false;
}

}  // namespace pushpull::ops
