#include "worker/compute/straggling.h"

#include <utility>

namespace pushpull {

namespace {

// A sleep ends about 50 us late (timer slack of Linux), so shorter ones are added up first.
constexpr double kMinSleep = 1e-4;

}  // namespace

Straggling::Straggling(std::function<double()> clock, std::function<void(double)> sleep)
    : clock_(std::move(clock)), sleep_(std::move(sleep)) {}

void Straggling::resume() {
  if (factor_ > 1.0) resumed_s_ = clock_();
}

void Straggling::lag() {
  if (factor_ <= 1.0) return;
  const double before = clock_();
  owed_s_ += (factor_ - 1.0) * (before - resumed_s_);
  resumed_s_ = before;
  if (owed_s_ < kMinSleep) return;
  sleep_(owed_s_);
  resumed_s_ = clock_();
  owed_s_ -= resumed_s_ - before;
}

}  // namespace pushpull
