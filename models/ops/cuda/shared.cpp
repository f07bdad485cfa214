#include "models/ops/cuda/shared.h"

#include <algorithm>
#include <optional>

#include "common/base/error.h"
#include "common/base/text.h"
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

namespace {

constexpr int kRounds = 3;
constexpr int kRunsPerRound = 5;
constexpr float kWorthwhile = 0.97F;

// Returns the milliseconds of the best round, or nullopt if the library rejects the candidate.
std::optional<float> measure(Shared& shared, const std::function<bool()>& run) {
  device::CudaEvent begin;
  device::CudaEvent end;
  PP_CUDA(cudaEventCreate(begin.put()));
  PP_CUDA(cudaEventCreate(end.put()));
  std::optional<float> best;
  for (int warm_up = 0; warm_up < 2; ++warm_up) {
    if (!run()) return {};
  }
  for (int round = 0; round < kRounds; ++round) {
    PP_CUDA(cudaEventRecord(begin.get(), shared.stream));
    for (int i = 0; i < kRunsPerRound; ++i) {
      if (!run()) return {};
    }
    PP_CUDA(cudaEventRecord(end.get(), shared.stream));
    PP_CUDA(cudaEventSynchronize(end.get()));
    float ms = 0.0F;
    PP_CUDA(cudaEventElapsedTime(&ms, begin.get(), end.get()));
    best = std::min(best.value_or(ms), ms);
  }
  return best;
}

}  // namespace

int choose(Shared& shared, int count, const std::function<bool(int)>& run) {
  int best = -1;
  float best_ms = 0.0F;
  for (int i = 0; i < count; ++i) {
    if (!shared.measure) {
      if (!run(i)) continue;
      PP_CUDA(cudaStreamSynchronize(shared.stream));
      return i;
    }
    const std::optional<float> ms = measure(shared, [&] { return run(i); });
    if (!ms) continue;
    if (best < 0 || *ms < kWorthwhile * best_ms) {
      best = i;
      best_ms = *ms;
    }
  }
  return best;
}

const std::string* chosen(const Shared& shared, const std::string& key) {
  const std::string* given = shared.given.find(key);
  return given != nullptr ? given : shared.made.find(key);
}

void refuse_choice(const Shared& shared, const std::string& key, const std::string& value,
                   const std::string& why) {
  throw Error(ErrorCode::kProtocol,
              "[choices] " + key + ": the job's '" + printable(value) + "' " + why + " on " +
                  shared.device->name() +
                  "; GPU workers of one job need the same libraries and the same GPU model");
}

}  // namespace pushpull::ops::cuda
