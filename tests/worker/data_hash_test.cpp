#include <gtest/gtest.h>

#include <vector>

#include "common/io/checkpoint.h"
#include "common/job/job.h"
#include "datasets/sampler.h"
#include "worker/compute/compute.h"

namespace pushpull {
namespace {

HashSum sum_of(const std::vector<HashSum>& hashes) {
  HashSum sum;
  for (const HashSum& h : hashes) sum += h;
  return sum;
}

TEST(DataHash, IsSha256OfPositionAndIndicesAsLittleEndianNumbers) {
  const std::vector<int64_t> numbers{7, 2, 258, 0};  // step, micro-batch, indices
  const std::vector<int64_t> indices{258, 0};
  std::vector<std::byte> bytes;
  for (const int64_t n : numbers) {
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<std::byte>(n >> (8 * i)));
  }
  EXPECT_EQ(data_hash(7, 2, indices).hex(), sha256_hex(bytes));
}

TEST(DataHash, SwappingSamplesBetweenMicroBatchesChangesIt) {
  const std::vector<int64_t> a{1, 2}, b{3, 4}, c{1, 3}, d{2, 4};
  EXPECT_NE(sum_of({data_hash(0, 0, a), data_hash(0, 1, b)}),
            sum_of({data_hash(0, 0, c), data_hash(0, 1, d)}));
  EXPECT_NE(sum_of({data_hash(0, 0, a), data_hash(0, 1, b)}),
            sum_of({data_hash(0, 0, b), data_hash(0, 1, a)}));
  EXPECT_NE(sum_of({data_hash(0, 0, a), data_hash(1, 0, b)}),
            sum_of({data_hash(1, 0, a), data_hash(0, 0, b)}));
}

// The seed affects the hash only through the drawn order.
TEST(DataHash, AnotherSeedDrawsAnotherOrder) {
  Job job;
  job.global_batch = 8;
  job.micro_batch = 4;
  const auto hash_of_epoch = [&](uint64_t seed, bool shuffle) {
    job.seed = seed;
    job.shuffle = shuffle;
    Sampler sampler(job, 40);
    HashSum sum;
    for (int64_t step = 0; step < 5; ++step) {
      for (int64_t m = 0; m < 2; ++m) sum += data_hash(step, m, sampler.indices(step, m));
    }
    return sum;
  };
  EXPECT_EQ(hash_of_epoch(1, true), hash_of_epoch(1, true));
  EXPECT_NE(hash_of_epoch(1, true), hash_of_epoch(2, true));
  EXPECT_EQ(hash_of_epoch(1, false), hash_of_epoch(2, false));
}

}  // namespace
}  // namespace pushpull
