// Checks the gradient of a plain loop in double against central differences.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace pushpull::test {

using Doubles = std::vector<double>;

inline Doubles doubles(const std::vector<float>& floats) { return {floats.begin(), floats.end()}; }

// Checks d(sum of dy * f(values)) / d values[which].
template <class Function>
void expect_differences(std::vector<Doubles> values, size_t which, const Doubles& dy,
                        const Doubles& gradient, const Function& f) {
  constexpr double kStep = 1e-5;
  const auto weighted = [&] {
    const Doubles y = f(values);
    double sum = 0.0;
    for (size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
    return sum;
  };
  for (size_t i = 0; i < values[which].size(); ++i) {
    const double middle = values[which][i];
    values[which][i] = middle + kStep;
    const double above = weighted();
    values[which][i] = middle - kStep;
    const double below = weighted();
    values[which][i] = middle;
    const double slope = (above - below) / (2.0 * kStep);
    ASSERT_NEAR(gradient[i], slope, 1e-6 * (1.0 + std::fabs(slope))) << which << ", " << i;
  }
}

}  // namespace pushpull::test
