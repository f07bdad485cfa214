#include "datasets/sampler.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>

#include "common/base/error.h"
#include "common/base/random.h"
#include "common/job/job.h"
#include "datasets/dataset.h"

namespace pushpull {

namespace {

// Returns a number from 0 to n - 1 by 64 random bits. A number is at most n / 2^64 more likely than
// another.
int64_t scale_to(uint64_t bits, int64_t n) {
  // the upper half of the product of 64 x 64 bits
  const auto choices = static_cast<uint64_t>(n);
  const uint64_t low = (bits & 0xFFFFFFFFU) * (choices & 0xFFFFFFFFU);
  const uint64_t cross = (bits >> 32U) * (choices & 0xFFFFFFFFU) + (low >> 32U);
  const uint64_t rest = (bits & 0xFFFFFFFFU) * (choices >> 32U) + (cross & 0xFFFFFFFFU);
  return static_cast<int64_t>((bits >> 32U) * (choices >> 32U) + (cross >> 32U) + (rest >> 32U));
}

}  // namespace

Sampler::Sampler(const Job& job, const Dataset& dataset)
    : Sampler(job, dataset.size(Split::kTrain), classes_for_sampler(job, dataset),
              dataset.sample_weights()) {
  if (dataset.in_order()) shuffle_ = false;
}

Sampler::Sampler(const Job& job, int64_t train_size, std::span<const int32_t> classes,
                 std::span<const double> weights)
    : seed_(job.seed),
      shuffle_(job.shuffle),
      weighted_(job.sampler == SamplerKind::kWeighted),
      train_size_(train_size),
      global_batch_(job.global_batch),
      micro_batch_(job.micro_batch),
      steps_per_epoch_(0) {
  PP_ASSERT(micro_batch_ > 0 && global_batch_ > 0 && global_batch_ % micro_batch_ == 0);
  PP_ASSERT(train_size_ >= global_batch_);  // the user gets check_job_against_data's message
  steps_per_epoch_ = train_size_ / global_batch_;
  PP_ASSERT(std::ssize(classes) == (weighted_ && weights.empty() ? train_size_ : 0));
  PP_ASSERT(weights.empty() || (weighted_ && std::ssize(weights) == train_size_));
  if (!weights.empty()) {
    std::partial_sum(weights.begin(), weights.end(), std::back_inserter(sums_));
  } else if (weighted_) {
    group(classes);
  }
  drawn_.resize(static_cast<size_t>(micro_batch_));
}

void Sampler::group(std::span<const int32_t> classes) {
  order_.resize(classes.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::stable_sort(order_, {}, [&](int64_t n) { return classes[static_cast<size_t>(n)]; });
  for (size_t i = 1; i <= order_.size(); ++i) {
    const auto class_at = [&](size_t k) { return classes[static_cast<size_t>(order_[k])]; };
    if (i == order_.size() || class_at(i) != class_at(i - 1)) {
      ends_.push_back(static_cast<int64_t>(i));
    }
  }
}

int64_t Sampler::draw(uint32_t epoch, int64_t place) const {
  const auto words = philox(seed_, RandomStream::kSampler, epoch, static_cast<uint64_t>(place));
  const auto bits = [&](size_t k) { return (uint64_t{words[k]} << 32U) | words[k + 1]; };
  if (!sums_.empty()) {
    // below 1: a sample whose weight is 0 has the sum of the one before it and is never the first above
    const double part = static_cast<double>(bits(0) >> 11U) * 0x1p-53;
    const auto drawn = std::ranges::upper_bound(sums_, part * sums_.back());
    return std::min(drawn, std::ranges::lower_bound(sums_, sums_.back())) - sums_.begin();
  }
  const auto k = static_cast<size_t>(scale_to(bits(0), std::ssize(ends_)));
  const int64_t begin = k == 0 ? 0 : ends_[k - 1];
  return order_[static_cast<size_t>(begin + scale_to(bits(2), ends_[k] - begin))];
}

std::span<const int64_t> Sampler::indices(int64_t step, int64_t micro_batch) {
  PP_ASSERT(step >= 0);
  PP_ASSERT(micro_batch >= 0 && micro_batch < global_batch_ / micro_batch_);
  const int64_t epoch = step / steps_per_epoch_;
  PP_ASSERT(epoch <= std::numeric_limits<uint32_t>::max());
  const int64_t first = step % steps_per_epoch_ * global_batch_ + micro_batch * micro_batch_;
  if (weighted_) {
    for (int64_t i = 0; i < micro_batch_; ++i) {
      drawn_[static_cast<size_t>(i)] = draw(static_cast<uint32_t>(epoch), first + i);
    }
    return drawn_;
  }
  if (!shuffle_) {
    std::iota(drawn_.begin(), drawn_.end(), first);
    return drawn_;
  }
  if (epoch != epoch_) order_ = permutation(seed_, static_cast<uint32_t>(epoch), train_size_);
  epoch_ = epoch;
  return std::span(order_).subspan(static_cast<size_t>(first), static_cast<size_t>(micro_batch_));
}

std::vector<int32_t> classes_for_sampler(const Job& job, const Dataset& dataset) {
  if (job.sampler != SamplerKind::kWeighted || !dataset.sample_weights().empty()) return {};
  const FieldTable& table = dataset.fields();
  const std::optional<size_t> field = table.find(table.find("class") ? "class" : "label");
  if (!field || table.fields[*field].type != FieldType::kInt ||
      !table.fields[*field].shape.empty()) {
    throw Error(ErrorCode::kUsage,
                "[data] sampler = weighted: expected the field class or label, "
                "dataset " +
                    job.dataset + " has " + table.names() + "; take sampler = uniform");
  }
  if (const std::span<const int32_t> known = dataset.classes(); !known.empty()) {
    return {known.begin(), known.end()};
  }
  constexpr int64_t kAtOnce = 64;
  const BatchLayout layout(table, kAtOnce);
  std::vector<float> block(layout.words());
  std::vector<int64_t> indices;
  std::vector<int32_t> classes;
  const int64_t samples = dataset.size(Split::kTrain);
  classes.reserve(static_cast<size_t>(samples));
  for (int64_t first = 0; first < samples; first += kAtOnce) {
    indices.resize(static_cast<size_t>(std::min(kAtOnce, samples - first)));
    std::iota(indices.begin(), indices.end(), first);
    dataset.read({Split::kTrain, 0, indices, layout}, block.data());
    const int32_t* found = as_ints(block.data() + layout.offset(*field));
    classes.insert(classes.end(), found, found + indices.size());
  }
  return classes;
}

}  // namespace pushpull
