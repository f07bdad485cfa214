#include "models/ops/cuda/shared.h"

#include "common/base/error.h"
#include "common/device/cuda_check.h"

namespace pushpull::ops::cuda {

size_t padded(size_t bytes) { return (bytes + 255) / 256 * 256; }

void* place_in_scratch(const Shared& shared, size_t place) {
  PP_ASSERT(place <= shared.scratch.size());
  return static_cast<std::byte*>(shared.scratch.data()) + place;
}

const void* stage_in(Shared& shared, const void* from, size_t bytes, size_t place) {
  if (is_aligned(from)) return from;
  void* const to = place_in_scratch(shared, place);
  copy(shared, from, bytes, to);
  return to;
}

void copy(Shared& shared, const void* from, size_t bytes, void* to) {
  PP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, shared.stream));
}

}  // namespace pushpull::ops::cuda
