#include "cli/bench/memory_floor.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "cli/bench/bench_result.h"
#include "cli/result/machine_info.h"
#include "common/base/buffer_pool.h"
#include "common/base/process.h"
#include "common/base/simd.h"

namespace pushpull {
namespace {

constexpr int64_t kBlock = 1024;  // floats: a sum of gradients stays in the first-level cache
constexpr int64_t kRoundBytes = int64_t{512} << 20;
constexpr int64_t kLeastRounds = 9;
constexpr int64_t kMostRounds = 2000;
constexpr int64_t kMostThreads = 16;
constexpr float kRate = 1e-3F;
constexpr float kMomentum = 0.9F;
constexpr float kSecond = 0.999F;
constexpr float kEpsilon = 1e-8F;

struct Vectors {
  std::vector<std::shared_ptr<float[]>> gradients;
  std::vector<std::shared_ptr<float[]>> state;
  std::shared_ptr<float[]> weights;
};

PUSHPULL_SIMD void add(const float* a, const float* b, float* out, int64_t n) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

PUSHPULL_SIMD void move_plain(const float* g, float* w, int64_t n) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) w[i] -= kRate * g[i];
}

PUSHPULL_SIMD void move_momentum(const float* g, float* m, float* w, int64_t n) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) {
    m[i] = kMomentum * m[i] + g[i];
    w[i] -= kRate * m[i];
  }
}

// The last addition and the update in one loop.
PUSHPULL_SIMD void move_momentum(const float* a, const float* b, float* m, float* w, int64_t n) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) {
    m[i] = kMomentum * m[i] + (a[i] + b[i]);
    w[i] -= kRate * m[i];
  }
}

PUSHPULL_SIMD void move_adam(const float* g, float* m, float* v, float* w, int64_t n) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) {
    m[i] = kMomentum * m[i] + (1 - kMomentum) * g[i];
    v[i] = kSecond * v[i] + (1 - kSecond) * g[i] * g[i];
    w[i] -= kRate * m[i] / (std::sqrt(v[i]) + kEpsilon);
  }
}

void pass(const Vectors& vectors, int64_t lo, int64_t hi) {
  alignas(64) float sum[kBlock];
  for (int64_t at = lo; at < hi; at += kBlock) {
    const int64_t n = std::min(kBlock, hi - at);
    const float* g = vectors.gradients.front().get() + at;
    if (vectors.gradients.size() == 2 && vectors.state.size() == 1) {
      move_momentum(g, vectors.gradients[1].get() + at, vectors.state[0].get() + at,
                    vectors.weights.get() + at, n);
      continue;
    }
    for (size_t i = 1; i < vectors.gradients.size(); ++i) {
      add(g, vectors.gradients[i].get() + at, sum, n);
      g = sum;
    }
    float* w = vectors.weights.get() + at;
    switch (vectors.state.size()) {
      case 0:
        move_plain(g, w, n);
        break;
      case 1:
        move_momentum(g, vectors.state[0].get() + at, w, n);
        break;
      default:
        move_adam(g, vectors.state[0].get() + at, vectors.state[1].get() + at, w, n);
    }
  }
}

// Microseconds of one pass with this many threads.
double timed_pass(const Vectors& vectors, int64_t n, int64_t threads) {
  const double begin = now_seconds();
  const int64_t part = (n + threads - 1) / threads;
  {
    std::vector<std::jthread> helpers;
    for (int64_t i = 1; i < threads; ++i) {
      helpers.emplace_back([&vectors, lo = std::min(n, i * part),
                            hi = std::min(n, (i + 1) * part)] { pass(vectors, lo, hi); });
    }
    pass(vectors, 0, std::min(n, part));
  }
  return (now_seconds() - begin) * 1e6;
}

// Written once, so that page faults are not measured.
std::shared_ptr<float[]> filled(int64_t n, float value) {
  std::shared_ptr<float[]> floats =
      heap_floats(static_cast<size_t>(n));  // aligned, as the servers'

  std::fill_n(floats.get(), n, value);
  return floats;
}

}  // namespace

double memory_floor_us(int64_t bytes, int64_t gradients, OptimizerKind optimizer) {
  const auto n = bytes / static_cast<int64_t>(sizeof(float));
  Vectors vectors;
  for (int64_t i = 0; i < gradients; ++i) vectors.gradients.push_back(filled(n, kRate));
  for (size_t i = 0; i < state_names(optimizer).size(); ++i) {
    vectors.state.push_back(filled(n, 0.0F));
  }
  vectors.weights = filled(n, 0.0F);
  const int64_t rounds = std::clamp(kRoundBytes / bytes, kLeastRounds, kMostRounds);
  const int64_t most = std::min(kMostThreads, machine_info().cores);
  double fastest = INFINITY;
  for (int64_t threads = 1; threads <= most; threads *= 2) {
    std::vector<double> times;
    for (int64_t i = 0; i < rounds; ++i) times.push_back(timed_pass(vectors, n, threads));
    fastest = std::min(fastest, percentiles(times).p50);
  }
  return fastest;
}

}  // namespace pushpull
