#include "worker/compute.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "common/error.h"
#include "common/norm.h"
#include "common/process.h"
#include "models/device_step.h"

namespace pushpull {

namespace {

std::string way_out(const Job& job) {
  return std::string("; a smaller ") + (job.precision == "fp16" ? "loss-scale, " : "") +
         "lr or clip-norm may help";
}

}  // namespace

Compute::Compute(const Job& job, const Dataset& dataset, Model& model, const SliceMap& map,
                 std::function<bool()> over, PushedMemory memory)
    : job_(job),
      model_(model),
      map_(map),
      whole_(model.table(), {0, model.table().total}, job.optimizer),
      loader_(job, dataset),
      devices_(model.device_steps()),
      over_(std::move(over)),
      straggling_(now_seconds, [this](double seconds) { sleep(seconds); }) {
  if (devices_.empty()) {
    gradient_ = make_host_sum(model.table(), map, std::move(memory.host));
  } else if (devices_.size() == 1) {
    gradient_ = make_device_sum(*devices_.front(), model.table(), map, std::move(memory));
  } else {
    team_ = std::make_unique<DeviceTeam>(devices_, model.table(), map, std::move(memory.host));
  }
}

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
  const GradientSum::SliceReady checked = [&](int slice, Payload part) {
    check_finite(step, slice, part);
    straggling_.lag();
    ready(slice, std::move(part));
    straggling_.resume();
  };
  // what a layer waits for is no computing
  const WeightsNeeded tensor_needed = [&](size_t tensor) {
    straggling_.lag();
    needed(tensor);
    straggling_.resume();
  };
  const Node all{step, node, weights, checked, needed ? tensor_needed : WeightsNeeded{}};
  if (team_) return on_devices(all, losses);
  gradient_->begin(node.size());
  return devices_.empty() ? on_host(all, losses) : on_device(all, losses);
}

const MicroBatch& Compute::read(int64_t step, int64_t micro_batch) {
  const MicroBatch& batch = loader_.get(step, micro_batch);
  data_hash_ += data_hash(step, micro_batch, batch.indices);
  return batch;
}

bool Compute::on_host(const Node& node, std::vector<float>& losses) {
  const bool traced = trace_ != nullptr && trace_->on();
  double begin_s = 0.0;
  double forward_s = 0.0;  // where it has ended; 0: not yet
  const GradientReady tensor_ready = [&](size_t tensor) {
    if (traced && forward_s == 0.0) forward_s = now_seconds();
    if (gradient_->in_last_leaf()) gradient_->tensor_ready(tensor, node.ready);
  };
  for (int64_t m = node.range.lo; m < node.range.hi; ++m) {
    if (over_()) return false;
    const MicroBatch& batch = read(node.step, m);
    straggling_.resume();
    forward_s = 0.0;
    if (traced) begin_s = now_seconds();
    const float loss = model_.train(node.weights, batch.images.data(), batch.labels.data(),
                                    gradient_->leaf(), tensor_ready, node.needed);
    check_loss(node.step, m, loss);
    losses.push_back(loss);
    gradient_->end_leaf();
    if (traced) {
      trace_->add(Trace::kForward, node.step, m, begin_s, forward_s);
      trace_->add(Trace::kBackward, node.step, m, forward_s, now_seconds());
    }
    straggling_.lag();
  }
  gradient_->finish(node.ready);
  return true;
}

// The host is ahead of the device: all micro-batches are enqueued before the first slice is there.
bool Compute::on_device(const Node& node, std::vector<float>& losses) {
  DeviceStep& device = *devices_.front();
  const GradientReady enqueued = [&](size_t tensor) {
    if (gradient_->in_last_leaf()) gradient_->tensor_ready(tensor, node.ready);
  };
  try {
    straggling_.resume();
    device.begin(node.weights);
    for (int64_t m = node.range.lo; m < node.range.hi; ++m) {
      if (over_()) {
        device.wait();
        return false;
      }
      const MicroBatch& batch = read(node.step, m);
      device.stage(batch.images, batch.labels);
      device.run(gradient_->leaf().data(), enqueued, node.needed);
      gradient_->end_leaf();
    }
    gradient_->finish(node.ready);
  } catch (...) {
    device.wait();  // nothing of a node that was given up may count in the next one
    throw;
  }
  add_losses(node, device.wait(), losses);
  if (trace_ != nullptr && trace_->on()) trace_last(node);
  straggling_.lag();
  return true;
}

// With all weights: devices that waited for each other's would gain little.
bool Compute::on_devices(const Node& node, std::vector<float>& losses) {
  for (size_t tensor = 0; node.needed && tensor < model_.table().tensors.size(); ++tensor) {
    node.needed(tensor);
  }
  std::mutex reading;
  const auto stage = [&](int64_t leaf, DeviceStep& device) {
    const std::lock_guard lock(reading);
    if (over_()) return false;
    const MicroBatch& batch = read(node.step, node.range.lo + leaf);
    device.stage(batch.images, batch.labels);
    return true;
  };
  straggling_.resume();
  std::vector<float> all;
  if (!team_->node(node.range.size(), node.weights, stage, node.ready, all)) return false;
  add_losses(node, all, losses);
  straggling_.lag();
  return true;
}

void Compute::add_losses(const Node& node, std::span<const float> all,
                         std::vector<float>& losses) const {
  PP_ASSERT(std::ssize(all) == node.range.size());
  for (size_t i = 0; i < all.size(); ++i) {
    check_loss(node.step, node.range.lo + static_cast<int64_t>(i), all[i]);
  }
  losses.insert(losses.end(), all.begin(), all.end());
}

// The device knows how long its work has taken, the host when the last of it had ended.
void Compute::trace_last(const Node& node) {
  const DeviceStep::Times times = devices_.front()->times();
  const double end_s = now_seconds();
  const double middle_s = end_s - times.backward_s;
  const int64_t last = node.range.hi - 1;
  trace_->add(Trace::kForward, node.step, last, middle_s - times.forward_s, middle_s);
  trace_->add(Trace::kBackward, node.step, last, middle_s, end_s);
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
  throw Error(ErrorCode::kNotFinite, "[train] the loss of worker " + std::to_string(rank_) +
                                         " at step " + std::to_string(step) + ", micro-batch " +
                                         std::to_string(micro_batch) + " is " +
                                         std::to_string(loss) + way_out(job_));
}

void Compute::check_finite(int64_t step, int slice, const Payload& part) const {
  if (team_ ? team_->finite(slice) : gradient_->finite(slice, part)) return;
  const int64_t first = map_.elements(slice).lo;
  const Payload here = team_ ? part : gradient_->on_host(part);
  int64_t i = 0;
  while (std::isfinite(here.floats()[i])) ++i;
  const TensorInfo* found = nullptr;
  for (const TensorInfo& tensor : model_.table().tensors) {
    if (tensor.offset <= first + i) found = &tensor;
  }
  PP_ASSERT(found != nullptr);
  const std::string what = found->rule == UpdateRule::kAverage ? "batch statistic" : "gradient";
  throw Error(ErrorCode::kNotFinite, "[train] the " + what + " of worker " + std::to_string(rank_) +
                                         " at step " + std::to_string(step) +
                                         " is not finite in tensor " + found->name + way_out(job_));
}

}  // namespace pushpull
