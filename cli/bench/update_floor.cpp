#include "cli/bench/update_floor.h"

#include <algorithm>
#include <cmath>

#include "cli/bench/percentiles.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/simd.h"
#include "common/base/thread_pool.h"
#include "common/host/cores.h"

namespace pushpull {
namespace {

constexpr int64_t kBlock = 1024;  // floats; a sum of gradients stays in the L1 cache
constexpr int64_t kMovedBytes = int64_t{512} << 20;
constexpr int64_t kMinRounds = 9;
constexpr int64_t kMaxRounds = 2000;
constexpr int64_t kMaxThreads = 16;
// Keeps the numbers from growing or vanishing: denormals and infinities change the speed.
constexpr float kRate = 1e-3F;
constexpr float kDecay = 0.9F;
constexpr float kGradient = 1e-3F;

PUSHPULL_SIMD void add(const float* a, const float* b, float* out, int64_t n) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

PUSHPULL_SIMD void move(const float* g, float* w, int64_t n) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) w[i] -= kRate * g[i];
}

PUSHPULL_SIMD void move_state(const float* g, float* m, float* w, int64_t n) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) {
    m[i] = kDecay * m[i] + g[i];
    w[i] -= kRate * m[i];
  }
}

// Does the last addition and the update in one loop.
PUSHPULL_SIMD void move_state(const float* a, const float* b, float* m, float* w, int64_t n) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) {
    m[i] = kDecay * m[i] + (a[i] + b[i]);
    w[i] -= kRate * m[i];
  }
}

PUSHPULL_SIMD void move_states(const float* g, float* m, float* v, float* w, int64_t n) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) {
    m[i] = kDecay * m[i] + g[i];
    v[i] = kDecay * v[i] + m[i];
    w[i] -= kRate * v[i];
  }
}

}  // namespace

UpdateFloor::UpdateFloor(int64_t bytes, int64_t gradients, size_t states)
    : elements_(bytes / static_cast<int64_t>(sizeof(float))) {
  PP_ASSERT(gradients > 0 && states <= 2);
  const auto size = static_cast<size_t>(bytes);
  for (int64_t i = 0; i < gradients; ++i) gradients_.push_back(floors::touched(size, kGradient));
  for (size_t i = 0; i < states; ++i) state_.push_back(floors::touched(size, 0.0F));
  weights_ = floors::touched(size, 0.0F);
}

void UpdateFloor::pass(int64_t lo, int64_t hi) {
  alignas(64) float sum[kBlock];
  // A single loop over all elements if no separate sum is needed.
  const bool apart = gradients_.size() > (state_.size() == 1 ? 2U : 1U);
  const int64_t step = apart ? kBlock : std::max<int64_t>(1, hi - lo);
  for (int64_t at = lo; at < hi; at += step) {
    const int64_t n = std::min(step, hi - at);
    const float* g = gradients_.front().get() + at;
    float* w = weights_.get() + at;
    if (gradients_.size() == 2 && state_.size() == 1) {
      move_state(g, gradients_[1].get() + at, state_[0].get() + at, w, n);
      continue;
    }
    for (size_t i = 1; i < gradients_.size(); ++i) {
      add(g, gradients_[i].get() + at, sum, n);
      g = sum;
    }
    switch (state_.size()) {
      case 0:
        move(g, w, n);
        break;
      case 1:
        move_state(g, state_[0].get() + at, w, n);
        break;
      default:
        move_states(g, state_[0].get() + at, state_[1].get() + at, w, n);
    }
  }
}

void UpdateFloor::pass(Parallel& parallel) {
  const int64_t parts = parallel.threads();
  parallel.run(parts, [&](int64_t part, int) {
    pass(elements_ * part / parts, elements_ * (part + 1) / parts);
  });
}

double update_floor_us(int64_t bytes, int64_t gradients, OptimizerKind optimizer) {
  UpdateFloor floor(bytes, gradients, state_names(optimizer).size());
  const int64_t rounds = std::clamp(kMovedBytes / bytes, kMinRounds, kMaxRounds);
  const int64_t most = std::min<int64_t>(kMaxThreads, useful_threads(0));
  double fastest = INFINITY;
  for (int64_t threads = 1; threads <= most; threads *= 2) {
    ThreadPool pool(static_cast<int>(threads));
    std::vector<double> times;
    for (int64_t i = 0; i < rounds; ++i) {
      const double begin = now_seconds();
      floor.pass(pool);
      times.push_back((now_seconds() - begin) * 1e6);
    }
    fastest = std::min(fastest, percentile(times, 0.5));
  }
  return fastest;
}

}  // namespace pushpull
