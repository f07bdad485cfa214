#include "worker/compute/data_hash.h"

#include <array>
#include <bit>
#include <cstddef>

#include "common/io/sha256.h"

namespace pushpull {

// The hash covers the bytes as they are in memory.
static_assert(std::endian::native == std::endian::little, "hashes would differ between machines");

HashSum data_hash(int64_t step, int64_t micro_batch, std::span<const int64_t> indices) {
  const std::array<int64_t, 2> place{step, micro_batch};
  Sha256 hash;
  hash.update(std::as_bytes(std::span(place)));
  hash.update(std::as_bytes(indices));
  return HashSum(hash.digest());
}

}  // namespace pushpull
