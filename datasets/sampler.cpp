#include "datasets/sampler.h"

#include <limits>
#include <numeric>

#include "common/base/error.h"
#include "common/base/random.h"
#include "common/job/job.h"

namespace pushpull {

Sampler::Sampler(const Job& job, int64_t train_size)
    : seed_(job.seed),
      shuffle_(job.shuffle),
      train_size_(train_size),
      global_batch_(job.global_batch),
      micro_batch_(job.micro_batch),
      steps_per_epoch_(0) {
  PP_ASSERT(micro_batch_ > 0 && global_batch_ > 0 && global_batch_ % micro_batch_ == 0);
  PP_ASSERT(train_size_ >= global_batch_);  // the user gets check_job_against_data's message
  steps_per_epoch_ = train_size_ / global_batch_;
}

std::span<const int64_t> Sampler::indices(int64_t step, int64_t micro_batch) {
  PP_ASSERT(step >= 0);
  PP_ASSERT(micro_batch >= 0 && micro_batch < global_batch_ / micro_batch_);
  const int64_t epoch = step / steps_per_epoch_;
  PP_ASSERT(epoch <= std::numeric_limits<uint32_t>::max());
  if (shuffle_ && epoch != epoch_) {
    order_ = permutation(seed_, static_cast<uint32_t>(epoch), train_size_);
  } else if (order_.empty()) {
    order_.resize(static_cast<size_t>(train_size_));
    std::iota(order_.begin(), order_.end(), 0);
  }
  epoch_ = epoch;
  const int64_t first = step % steps_per_epoch_ * global_batch_ + micro_batch * micro_batch_;
  return std::span(order_).subspan(static_cast<size_t>(first), static_cast<size_t>(micro_batch_));
}

}  // namespace pushpull
