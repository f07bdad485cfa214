#include "worker/compute.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "common/error.h"
#include "common/norm.h"
#include "common/process.h"

namespace pushpull {

namespace {

// Exponent bits all set: NaN or infinite.
bool all_finite(const float* x, int64_t n) {
  uint32_t found = 0;
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, x + i, sizeof bits);
    found |= static_cast<uint32_t>((bits & 0x7f800000U) == 0x7f800000U);
  }
  return found == 0;
}

}  // namespace

Compute::Compute(const Job& job, const Dataset& dataset, Model& model, const SliceMap& map,
                 std::function<bool()> over)
    : job_(job),
      model_(model),
      map_(map),
      whole_(model.table(), {0, model.table().total}, job.optimizer),
      loader_(job, dataset),
      gradient_(model.table(), map),
      over_(std::move(over)),
      straggling_(now_seconds, [this](double seconds) { sleep(seconds); }) {}

void Compute::set_rank(int rank) {
  rank_ = rank;
  const bool slow = rank >= 0 && rank == job_.straggler.rank;
  straggling_.set_factor(slow ? job_.straggler.factor : 1.0);
}

// In pieces, so that the end of the job is noticed.
void Compute::sleep(double seconds) const {
  constexpr double kPiece = 0.02;
  for (; seconds > 0.0 && !over_(); seconds -= kPiece) {
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(seconds, kPiece)));
  }
}

bool Compute::node(int64_t step, Range node, std::span<const float> weights,
                   const GradientSum::SliceReady& ready, std::vector<float>& losses,
                   const WeightsNeeded& needed) {
  gradient_.begin(node.size());
  const auto checked = [&](int slice, Payload part) {
    check_finite(step, slice, part);
    straggling_.lag();
    ready(slice, std::move(part));
    straggling_.resume();
  };
  const GradientReady tensor_ready = [&](size_t tensor) {
    if (gradient_.in_last_leaf()) gradient_.tensor_ready(tensor, checked);
  };
  // what a layer waits for is no computing
  const WeightsNeeded tensor_needed = [&](size_t tensor) {
    straggling_.lag();
    needed(tensor);
    straggling_.resume();
  };
  for (int64_t m = node.lo; m < node.hi; ++m) {
    if (over_()) return false;
    const MicroBatch& batch = loader_.get(step, m);
    data_hash_ += data_hash(step, m, batch.indices);
    straggling_.resume();
    const float loss =
        model_.train(weights, batch.images.data(), batch.labels.data(), gradient_.leaf(),
                     tensor_ready, needed ? tensor_needed : WeightsNeeded{});
    check_loss(step, m, loss);
    losses.push_back(loss);
    gradient_.end_leaf();
    straggling_.lag();
  }
  return true;
}

void Compute::hint(int64_t step, Range range) {
  const int64_t ahead = std::min<int64_t>(range.size(), Loader::kMaxHints / 2);
  for (int64_t i = 0; i < ahead; ++i) loader_.hint(step, range.lo + i);
}

double Compute::squares(int64_t micro_batches) const {
  return whole_.all_squares(gradient_.sum().data(), static_cast<double>(micro_batches));
}

void Compute::check_loss(int64_t step, int64_t micro_batch, float loss) const {
  if (std::isfinite(loss)) return;
  throw Error(ErrorCode::kNotFinite,
              "[train] the loss of worker " + std::to_string(rank_) + " at step " +
                  std::to_string(step) + ", micro-batch " + std::to_string(micro_batch) + " is " +
                  std::to_string(loss) + "; a smaller lr or clip-norm may help");
}

void Compute::check_finite(int64_t step, int slice, const Payload& part) const {
  const auto n = static_cast<int64_t>(part.float_count());
  if (all_finite(part.floats(), n)) return;
  const int64_t first = map_.elements(slice).lo;
  int64_t i = 0;
  while (std::isfinite(part.floats()[i])) ++i;
  const TensorInfo* found = nullptr;
  for (const TensorInfo& tensor : model_.table().tensors) {
    if (tensor.offset <= first + i) found = &tensor;
  }
  PP_ASSERT(found != nullptr);
  const std::string what = found->rule == UpdateRule::kAverage ? "batch statistic" : "gradient";
  throw Error(ErrorCode::kNotFinite, "[train] the " + what + " of worker " + std::to_string(rank_) +
                                         " at step " + std::to_string(step) +
                                         " is not finite in tensor " + found->name +
                                         "; a smaller lr or clip-norm may help");
}

}  // namespace pushpull
