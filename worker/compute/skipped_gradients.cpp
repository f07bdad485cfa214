#include "worker/compute/skipped_gradients.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/base/error.h"
#include "worker/compute/gradient_sum.h"

namespace pushpull {

namespace {

template <class T>
std::span<T> part_of(std::span<T> whole, const TensorInfo& tensor) {
  return whole.subspan(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.size));
}

}  // namespace

SkippedGradients::SkippedGradients(const TensorTable& table, bool on_host) : table_(table) {
  if (on_host) return;
  throw Error(ErrorCode::kUsage,
              "[train] on-bad-gradient = skip needs gradients in host memory, and this "
              "worker computes on a device: use abort or quarantine, or --device cpu");
}

float SkippedGradients::take(const MicroBatch& computed, std::span<const float> weights,
                             const WeightsNeeded& needed) {
  const std::vector<TensorInfo>& tensors = table_.tensors;
  const auto bad = std::ranges::find_if(tensors, [&](const TensorInfo& tensor) {
    return !all_finite(part_of(computed.gradient, tensor).data(), tensor.size);
  });
  const bool good_loss = std::isfinite(computed.loss);
  if (good_loss && bad == tensors.end()) return computed.loss;
  wire::BadGradient& found = found_.emplace_back();
  found.set_loss(static_cast<int32_t>(computed.place));
  if (good_loss) found.set_tensor(static_cast<int32_t>(bad - tensors.begin()) + 1);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::span<float> part = part_of(computed.gradient, tensors[i]);
    if (tensors[i].rule != UpdateRule::kAverage) {
      std::ranges::fill(part, 0.0F);
      continue;
    }
    if (needed) needed(i);
    std::ranges::copy(part_of(weights, tensors[i]), part.begin());
  }
  return 0.0F;
}

}  // namespace pushpull
