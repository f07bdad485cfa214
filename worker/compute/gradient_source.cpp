#include "worker/compute/gradient_source.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <thread>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/io/sha256.h"
#include "common/job/job.h"
#include "models/device_step.h"
#include "worker/compute/device_team.h"
#include "worker/compute/pipeline_source.h"

namespace pushpull {
namespace {

// A sleep ends about 50 us late (timer slack of Linux), so shorter ones are added up first.
constexpr double kMinSleep = 1e-4;

}  // namespace

Straggling::Straggling(std::function<double()> clock, std::function<void(double)> sleep)
    : clock_(std::move(clock)), sleep_(std::move(sleep)) {}

void Straggling::resume() {
  if (factor_ > 1.0) resumed_s_ = clock_();
}

void Straggling::lag() {
  if (factor_ <= 1.0) return;
  const double before = clock_();
  owed_s_ += (factor_ - 1.0) * (before - resumed_s_);
  resumed_s_ = before;
  if (owed_s_ < kMinSleep) return;
  sleep_(owed_s_);
  resumed_s_ = clock_();
  owed_s_ -= resumed_s_ - before;
}

// The hash covers the bytes as they are in memory.
static_assert(std::endian::native == std::endian::little, "hashes would differ between machines");

HashSum data_hash(int64_t step, int64_t micro_batch, std::span<const int64_t> indices) {
  const std::array<int64_t, 2> place{step, micro_batch};
  Sha256 hash;
  hash.update(std::as_bytes(std::span(place)));
  hash.update(std::as_bytes(indices));
  return HashSum(hash.digest());
}

// ---- MicroBatches ----

MicroBatches::MicroBatches(const Job& job, const Dataset& dataset, std::function<bool()> over)
    : job_(job),
      loader_(job, dataset),
      over_(std::move(over)),
      straggling_(now_seconds, [this](double seconds) { sleep(seconds); }) {}

void MicroBatches::set_rank(int rank) {
  rank_ = rank;
  const bool slow = rank >= 0 && rank == job_.straggler.rank;
  straggling_.set_factor(slow ? job_.straggler.factor : 1.0);
}

// Sleeps in short pieces, so that it ends soon after the job.
void MicroBatches::sleep(double seconds) const {
  constexpr double kPiece = 0.02;
  for (; seconds > 0.0 && !over_(); seconds -= kPiece) {
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(seconds, kPiece)));
  }
}

const MicroBatch& MicroBatches::get(int64_t step, int64_t micro_batch) {
  const MicroBatch& batch = read(step, micro_batch);
  hash_ += data_hash(step, micro_batch, batch.indices);
  return batch;
}

const MicroBatch& MicroBatches::read(int64_t step, int64_t micro_batch) {
  straggling_.lag();  // reading does not count as computing
  const MicroBatch& batch = loader_.get(step, micro_batch);
  straggling_.resume();
  return batch;
}

void MicroBatches::count_computed(int64_t micro_batches) {
  if (activity_ != nullptr) activity_->add_computed(micro_batches);
}

float MicroBatches::checked_loss(int64_t step, int64_t micro_batch, float loss) const {
  if (std::isfinite(loss)) return loss;
  throw Error(ErrorCode::kNotFinite, "[train] the loss of " + where(step) + ", micro-batch " +
                                         std::to_string(micro_batch) + " is " +
                                         std::to_string(loss) + advice());
}

void MicroBatches::add_checked(int64_t step, Range micro_batches, std::span<const float> all,
                               std::vector<float>& losses) const {
  PP_ASSERT(std::ssize(all) == micro_batches.size());
  for (size_t i = 0; i < all.size(); ++i) {
    losses.push_back(checked_loss(step, micro_batches.lo + static_cast<int64_t>(i), all[i]));
  }
}

std::string MicroBatches::where(int64_t step) const {
  return "worker " + std::to_string(rank_) + " at step " + std::to_string(step);
}

std::string MicroBatches::advice() const {
  return std::string("; a smaller ") + (job_.precision == "fp16" ? "loss-scale, " : "") +
         "lr or clip-norm may help";
}

namespace {

// ---- the processor ----

class HostSource final : public GradientSource {
 public:
  HostSource(const Job& job, Model& model, const SliceMap& map, MicroBatches& batches,
             FloatAllocator memory)
      : model_(model),
        batches_(batches),
        sum_(make_host_sum(elements_of(model.table()), map, std::move(memory))) {
    if (job.on_bad_gradient == OnBadGradient::kSkip) skipped_.emplace(model.table());
  }

  void set_trace(Trace& trace) override { trace_ = trace.on() ? &trace : nullptr; }
  bool node(const NodeWork& work, std::vector<float>& losses) override;
  std::vector<wire::BadGradient> take_bad() override {
    return skipped_ ? skipped_->take_found() : std::vector<wire::BadGradient>();
  }
  std::span<const float> sum() const override { return sum_->sum(); }
  bool finite(int slice, const Payload& part) const override { return sum_->finite(slice, part); }

 private:
  Model& model_;
  MicroBatches& batches_;
  const std::unique_ptr<GradientSum> sum_;
  std::optional<SkippedGradients> skipped_;  // on-bad-gradient = skip
  Trace* trace_ = nullptr;                   // null unless traced
};

bool HostSource::node(const NodeWork& work, std::vector<float>& losses) {
  double begin_s = 0.0;
  double forward_s = 0.0;  // when forward ended; 0 if it has not
  const GradientReady tensor_ready = [&](size_t tensor) {
    if (trace_ != nullptr && forward_s == 0.0) forward_s = now_seconds();
    sum_->bound(tensor, model_.gradient_bound(tensor));
    if (sum_->in_last_leaf() && !skipped_) sum_->tensor_ready(tensor, work.ready);
  };
  sum_->begin(work.range.size());
  for (int64_t m = work.range.lo; m < work.range.hi; ++m) {
    if (batches_.over()) return false;
    const Samples samples = batches_.get(work.step, m).view(m != work.first);
    forward_s = 0.0;
    if (trace_ != nullptr) begin_s = now_seconds();
    const std::span<float> leaf = sum_->leaf();
    const float loss = model_.train(work.weights, samples, leaf, tensor_ready, work.needed);
    losses.push_back(skipped_
                         ? skipped_->take({leaf, loss, losses.size()}, work.weights, work.needed)
                         : batches_.checked_loss(work.step, m, loss));
    // a slice may go out only once the whole micro-batch was checked
    if (skipped_ && sum_->in_last_leaf()) sum_->all_ready(work.ready);
    sum_->end_leaf();
    if (trace_ != nullptr) {
      trace_->add(Trace::kForward, work.step, m, begin_s, forward_s);
      trace_->add(Trace::kBackward, work.step, m, forward_s, now_seconds());
    }
    batches_.count_computed(1);
  }
  sum_->finish(work.ready);
  return true;
}

// ---- one device ----

class DeviceSource final : public GradientSource {
 public:
  DeviceSource(DeviceStep& device, const TensorTable& table, const SliceMap& map,
               MicroBatches& batches, PushedMemory memory)
      : device_(device),
        map_(map),
        batches_(batches),
        inputs_({&device}, batches),
        sum_(make_device_sum(device, table, map, std::move(memory))) {}

  void set_trace(Trace& trace) override;
  bool node(const NodeWork& work, std::vector<float>& losses) override;
  void abandon() override { inputs_.clear(); }
  std::span<const float> sum() const override { return sum_->sum(); }
  bool finite(int slice, const Payload& part) const override { return sum_->finite(slice, part); }
  Payload on_host(const Payload& part) const override { return sum_->on_host(part); }

 private:
  bool enqueue(const NodeWork& work, const GradientSum::SliceReady& ready);

  DeviceStep& device_;
  const SliceMap map_;
  MicroBatches& batches_;
  StagedInputs inputs_;
  const std::unique_ptr<GradientSum> sum_;
  Trace* trace_ = nullptr;                     // null unless traced
  std::unique_ptr<DeviceTrace> device_trace_;  // as trace_
};

void DeviceSource::set_trace(Trace& trace) {
  if (!trace.on()) return;
  trace_ = &trace;
  device_trace_ = std::make_unique<DeviceTrace>(trace, device_, map_);
  sum_->keep_times();
}

// The host runs ahead of the device: it enqueues all micro-batches before the first slice is ready.
bool DeviceSource::enqueue(const NodeWork& work, const GradientSum::SliceReady& ready) {
  const GradientReady enqueued = [&](size_t tensor) {
    if (sum_->in_last_leaf()) sum_->tensor_ready(tensor, ready);
  };
  if (work.is_first()) device_.begin(work.weights);
  for (int64_t m = work.range.lo; m < work.range.hi; ++m) {
    if (batches_.over()) return false;
    inputs_.stage(0, work.step, m);
    device_.run(sum_->leaf().data(), enqueued, work.needed);
    sum_->end_leaf();
    batches_.count_computed(1);
  }
  inputs_.stage_ahead(0, work.next_step, work.next, 0);
  sum_->finish(ready);
  return true;
}

bool DeviceSource::node(const NodeWork& work, std::vector<float>& losses) {
  const double begin_s = trace_ != nullptr ? now_seconds() : 0.0;
  if (trace_ != nullptr) device_trace_->begin();
  const GradientSum::SliceReady traced = [&](int slice, Payload part) {
    device_trace_->copied(*sum_, slice, now_seconds());
    work.ready(slice, std::move(part));
  };
  sum_->begin(work.range.size());
  bool whole = false;
  try {
    whole = enqueue(work, trace_ != nullptr ? traced : work.ready);
  } catch (...) {
    device_.wait();  // no work of an abandoned node may leak into the next one
    throw;
  }
  if (!whole) {
    device_.wait();
    return false;
  }
  inputs_.stage_ahead(0, work.next_step, work.next, 0);
  batches_.add_checked(work.step, work.range, device_.wait(), losses);
  if (trace_ != nullptr) {
    trace_->add(Trace::kPart, work.step, work.range.lo, begin_s, now_seconds());
    device_trace_->end(work.step, work.range.lo);
  }
  return true;
}

}  // namespace

std::unique_ptr<GradientSource> make_gradient_source(const Job& job, Model& model,
                                                     const SliceMap& map, MicroBatches& batches,
                                                     PushedMemory memory, StageExchange* exchange) {
  const std::vector<DeviceStep*> devices = model.device_steps();
  for (DeviceStep* device : devices) device->unstage();  // inputs of an earlier term
  Pipeline* const pipeline = model.pipeline();
  GroupStage* const group = model.group_stage();
  if ((pipeline != nullptr || group != nullptr) && job.on_bad_gradient == OnBadGradient::kSkip) {
    throw Error(ErrorCode::kUsage,
                "[train] on-bad-gradient = skip needs whole gradients, and this worker computes "
                "in stages: use abort or quarantine, or leave stages out");
  }
  if (group != nullptr) {
    PP_ASSERT(exchange != nullptr);
    return std::make_unique<PipelineSource>(*group, model.table(), map, batches, *exchange,
                                            std::move(memory.host));
  }
  if (pipeline != nullptr) {
    return std::make_unique<PipelineSource>(*pipeline, model.table(), map, batches,
                                            std::move(memory.host));
  }
  if (devices.empty()) {
    return std::make_unique<HostSource>(job, model, map, batches, std::move(memory.host));
  }
  if (job.on_bad_gradient == OnBadGradient::kSkip) {
    throw Error(ErrorCode::kUsage,
                "[train] on-bad-gradient = skip needs gradients in host memory, and this "
                "worker computes on a device: use abort or quarantine, or --device cpu");
  }
  if (devices.size() > 1) {
    return std::make_unique<DeviceTeam>(devices, model.table(), map, batches,
                                        std::move(memory.host));
  }
  return std::make_unique<DeviceSource>(*devices.front(), model.table(), map, batches,
                                        std::move(memory));
}

}  // namespace pushpull
