#include "datasets/sample_counts.h"

#include "common/base/error.h"
#include "common/job/job.h"

namespace pushpull {

namespace {

constexpr int64_t kDefaultTrainSamples = 4096;
constexpr int64_t kDefaultTestSamples = 1024;
// Samples have 32-bit numbers; the test split starts here.
constexpr uint32_t kFirstTestNumber = uint32_t{1} << 31;
constexpr int64_t kMaxGenerated = int64_t{1} << 31;

}  // namespace

int64_t take_samples(const char* key, int64_t wanted, int64_t available) {
  if (wanted < 0 || wanted > available) {
    throw Error(ErrorCode::kUsage, std::string("[data] ") + key + ": expected at most " +
                                       std::to_string(available) + ", the size of the split, got " +
                                       std::to_string(wanted) +
                                       "; lower it, set 0 for all, or take another dataset");
  }
  return wanted == 0 ? available : wanted;
}

int64_t check_generated(const char* dataset, const char* key, int64_t value, int64_t least,
                        int64_t most) {
  if (value >= least && value <= most) return value;
  throw Error(ErrorCode::kUsage, std::string("[data] ") + dataset + ": " + key + ": expected " +
                                     std::to_string(least) + " to " + std::to_string(most) +
                                     ", got " + std::to_string(value) + "; change " + key);
}

GeneratedSizes generated_sizes(const char* dataset, const Job& job) {
  const auto size = [&](const char* key, int64_t wanted, int64_t otherwise) {
    return check_generated(dataset, key, wanted == 0 ? otherwise : wanted, 1, kMaxGenerated);
  };
  return {size("train-samples", job.train_samples, kDefaultTrainSamples),
          size("test-samples", job.test_samples, kDefaultTestSamples)};
}

uint32_t generated_number(Split split, int64_t sample) {
  PP_ASSERT(sample >= 0 && sample < kMaxGenerated);
  return (split == Split::kTest ? kFirstTestNumber : 0) + static_cast<uint32_t>(sample);
}

}  // namespace pushpull
