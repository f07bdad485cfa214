// Memory and numbers for tests of the stand-ins.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

#include "tests/cuda_on_host/libs/numbers.h"

namespace pushpull::cuda_on_host {

// Memory with the alignment of device memory.
class Bytes {
 public:
  explicit Bytes(size_t bytes) : data_(new (std::align_val_t{256}) std::byte[bytes]) {}
  ~Bytes() { ::operator delete[](data_, std::align_val_t{256}); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  std::byte* at(size_t offset = 0) const { return data_ + offset; }

 private:
  std::byte* data_;
};

// Returns `count` multiples of a quarter that depend on `seed`. Every type holds them exactly, and
// f32 holds their sums of products exactly, in any order.
inline std::vector<double> some_values(size_t count, size_t seed) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = (static_cast<double>((i * 7 + seed * 5 + i / 11) % 17) - 8.0) / 4.0;
  }
  return values;
}

inline void write(const std::vector<double>& values, Number type, void* to) {
  for (size_t i = 0; i < values.size(); ++i) store(static_cast<float>(values[i]), to, type, i);
}

}  // namespace pushpull::cuda_on_host
