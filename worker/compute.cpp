#include "worker/compute.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <utility>

#include "common/error.h"
#include "common/norm.h"
#include "common/process.h"

namespace pushpull {

Compute::Compute(const Job& job, const Dataset& dataset, Model& model, const SliceMap& map,
                 std::function<bool()> over, FloatAllocator memory)
    : job_(job),
      model_(model),
      map_(map),
      whole_(model.table(), {0, model.table().total}, job.optimizer),
      loader_(job, dataset),
      gradient_(make_host_sum(model.table(), map, std::move(memory))),
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
  gradient_->begin(node.size());
  const auto checked = [&](int slice, Payload part) {
    check_finite(step, slice, part);
    straggling_.lag();
    ready(slice, std::move(part));
    straggling_.resume();
  };
  const bool traced = trace_ != nullptr && trace_->on();
  double begin_s = 0.0;
  double forward_s = 0.0;  // where it has ended; 0: not yet
  const GradientReady tensor_ready = [&](size_t tensor) {
    if (traced && forward_s == 0.0) forward_s = now_seconds();
    if (gradient_->in_last_leaf()) gradient_->tensor_ready(tensor, checked);
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
    forward_s = 0.0;
    if (traced) begin_s = now_seconds();
    const float loss =
        model_.train(weights, batch.images.data(), batch.labels.data(), gradient_->leaf(),
                     tensor_ready, needed ? tensor_needed : WeightsNeeded{});
    check_loss(step, m, loss);
    losses.push_back(loss);
    gradient_->end_leaf();
    if (traced) {
      trace_->add(Trace::kForward, step, m, begin_s, forward_s);
      trace_->add(Trace::kBackward, step, m, forward_s, now_seconds());
    }
    straggling_.lag();
  }
  gradient_->finish(checked);
  return true;
}

void Compute::hint(int64_t step, Range range) {
  const int64_t ahead = std::min<int64_t>(range.size(), Loader::kMaxHints / 2);
  for (int64_t i = 0; i < ahead; ++i) loader_.hint(step, range.lo + i);
}

double Compute::squares(std::span<const float> sum, int64_t micro_batches) const {
  PP_ASSERT(std::ssize(sum) == whole_.size());
  return whole_.all_squares(sum.data(), static_cast<double>(micro_batches));
}

void Compute::check_loss(int64_t step, int64_t micro_batch, float loss) const {
  if (std::isfinite(loss)) return;
  throw Error(ErrorCode::kNotFinite,
              "[train] the loss of worker " + std::to_string(rank_) + " at step " +
                  std::to_string(step) + ", micro-batch " + std::to_string(micro_batch) + " is " +
                  std::to_string(loss) + "; a smaller lr or clip-norm may help");
}

void Compute::check_finite(int64_t step, int slice, const Payload& part) const {
  if (gradient_->finite(slice, part)) return;
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
