#include "worker/compute/stage_weights.h"

#include <algorithm>
#include <memory>
#include <span>

namespace pushpull {

namespace {

constexpr auto kWeights = wire::StagePart::KIND_WEIGHTS;

}  // namespace

StageWeights::StageWeights(const StageParts& parts, StageExchange& exchange)
    : received_(parts.returns), exchange_(exchange) {
  for (const StageParts::Returned& part : parts.gathered) {
    sent_.push_back({part, BufferPool(part.floats())});
  }
}

// Weights come from stages before this one only, so no stages wait for each other.
void StageWeights::share(int64_t step, int64_t index, float* weights) {
  for (const StageParts::Returned& part : received_) {
    const Payload from = exchange_.receive({part.stage, kWeights, step, index}, part.floats());
    const float* next = from.floats();
    for (const Range& range : part.ranges) {
      std::copy_n(next, range.size(), weights + range.lo);
      next += range.size();
    }
  }
  for (Sent& to : sent_) {
    const std::shared_ptr<float[]> buffer = to.pool.get();
    float* next = buffer.get();
    for (const Range& range : to.part.ranges) {
      next = std::copy_n(weights + range.lo, range.size(), next);
    }
    exchange_.send({to.part.stage, kWeights, step, index},
                   {buffer, std::as_bytes(std::span<const float>(buffer.get(), to.pool.floats()))});
  }
}

}  // namespace pushpull
