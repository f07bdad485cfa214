#include "tests/simulation/process.h"

#include <algorithm>
#include <utility>

namespace pushpull::sim {

void Process::happen(std::function<void()> event) {
  if (ended_) return;
  if (cluster_.clock().now_us() < frozen_until_us_) {
    frozen_.push_back(std::move(event));
    return;
  }
  cluster_.guarded(name_, [&] {
    try {
      event();
    } catch (const Error& error) {
      if (!ends_with(error)) throw;
    }
  });
}

void Process::later(int64_t delay_us, std::function<void()> event) {
  cluster_.clock().after(delay_us,
                         [this, event = std::move(event)]() mutable { happen(std::move(event)); });
}

void Process::freeze(int64_t ms) {
  frozen_until_us_ = std::max(frozen_until_us_, cluster_.clock().now_us() + ms * 1000);
  cluster_.clock().after(ms * 1000, [this] {
    for (auto& event : std::exchange(frozen_, {})) happen(std::move(event));
  });
}

}  // namespace pushpull::sim
