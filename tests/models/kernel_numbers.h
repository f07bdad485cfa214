// Numbers for the tests of kernels, as activations of any type.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "models/ops/number.h"

namespace pushpull::numbers {

// Returns different numbers in -1..1.
inline std::vector<float> ordinary(int64_t count, int64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(
        static_cast<double>((i * 7919 + seed * 104729) % 20011) / 10005.5 - 1.0));
  }
  return values;
}

// Returns half a unit in the last place of a number just above a power of two.
template <class T>
double roundoff() {
  if (std::is_same_v<T, ops::Bf16>) return 0x1p-8;
  return std::is_same_v<T, ops::Fp16> ? 0x1p-11 : 0x1p-24;
}

template <class T>
std::vector<T> converted(const std::vector<float>& from) {
  std::vector<T> to;
  for (const float value : from) to.push_back(ops::from_float<T>(value));
  return to;
}
template <class T>
std::vector<float> floats(const std::vector<T>& from) {
  std::vector<float> to;
  for (const T value : from) to.push_back(ops::to_float(value));
  return to;
}
template <class T>
std::vector<double> values(const std::vector<T>& from) {
  std::vector<double> to;
  for (const T value : from) to.push_back(static_cast<double>(ops::to_float(value)));
  return to;
}

}  // namespace pushpull::numbers
