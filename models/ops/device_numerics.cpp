#include "models/ops/device_numerics.h"

namespace pushpull::ops {

std::string to_string(const DeviceNumerics& numerics) {
  const auto text = [](auto value) { return std::to_string(value); };
  const size_t lt = numerics.cublas_lt;
  return "cuda " + numerics.device + " sm_" + text(numerics.major) + text(numerics.minor) +
         " runtime " + text(numerics.runtime / 1000) + "." + text(numerics.runtime % 1000 / 10) +
         " cuBLASLt " + text(lt / 10000) + "." + text(lt / 100 % 100) + "." + text(lt % 100) +
         (numerics.cudnn.empty() ? " no cuDNN" : " cuDNN " + numerics.cudnn) + " " +
         to_string(numerics.precision) + " loss-scale " +
         text(static_cast<int64_t>(numerics.loss_scale));
}

}  // namespace pushpull::ops
