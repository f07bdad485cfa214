#include "models/ops/cpu/split.h"

#include <omp.h>

#include <algorithm>

namespace pushpull::ops::cpu {

void split_range(int64_t n, int64_t grain, RangeBody run, const void* body) {
  const int64_t parts = std::min<int64_t>(omp_get_max_threads(), n / grain);
  if (parts <= 1) {
    if (n > 0) run(body, 0, n);
    return;
  }
#pragma omp parallel for schedule(static)
  for (int64_t part = 0; part < parts; ++part) {
    run(body, n * part / parts, n * (part + 1) / parts);
  }
}

int64_t thread_index() { return omp_get_thread_num(); }

}  // namespace pushpull::ops::cpu
