// Random choices drawn from a seed, where any order is right. Source of the mixer: Steele, Lea &
// Flood, OOPSLA 2014 (SplitMix64).
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace cuda_on_host {

class Order {
 public:
  explicit Order(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  // bound: above 0, below 2^32. Source: Lemire, TOMACS 2019, without its last step.
  uint64_t below(uint64_t bound) { return (next() >> 32) * bound >> 32; }

  template <class T>
  void shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }

 private:
  uint64_t state_;
};

// The numbers 0, ..., count - 1 in a shuffled order, without a list.
class Stride {
 public:
  Stride(uint64_t count, Order& order) : count_(count), first_(order.below(count)) {
    do {
      step_ = 1 + order.below(count);
    } while (std::gcd(step_, count) != 1);
  }
  uint64_t at(uint64_t i) const { return (first_ + i * step_) % count_; }

 private:
  uint64_t count_;
  uint64_t first_;
  uint64_t step_ = 1;
};

}  // namespace cuda_on_host
