#include "worker/data_hash.h"

#include <array>
#include <cstddef>

#include "common/io/sha256.h"

namespace pushpull {

namespace {

// Little-endian, whatever the machine has.
void add(Sha256& hash, int64_t value) {
  std::array<std::byte, 8> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
  }
  hash.update(bytes);
}

}  // namespace

HashSum data_hash(int64_t step, int64_t micro_batch, std::span<const int64_t> indices) {
  Sha256 hash;
  add(hash, step);
  add(hash, micro_batch);
  for (const int64_t index : indices) add(hash, index);
  return HashSum(hash.digest());
}

}  // namespace pushpull
