#include "worker/compute/compute.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/io/sha256.h"
#include "common/job/job.h"
#include "common/update/norm.h"
#include "models/device_step.h"

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

namespace {

std::string advice(const Job& job) {
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
      ahead_(devices_.size()),
      over_(std::move(over)),
      straggling_(now_seconds, [this](double seconds) { sleep(seconds); }) {
  for (DeviceStep* device : devices_) device->unstage();  // inputs of an earlier term
  if (job.on_bad_gradient == OnBadGradient::kSkip) {
    skipped_.emplace(model.table(), devices_.empty());
  }
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
  model_.set_rank(rank);
  const bool slow = rank >= 0 && rank == job_.straggler.rank;
  straggling_.set_factor(slow ? job_.straggler.factor : 1.0);
}

void Compute::set_trace(Trace& trace) {
  trace_ = &trace;
  if (!trace.on() || devices_.empty()) return;
  if (team_) return team_->set_trace(trace);
  device_trace_ = std::make_unique<DeviceTrace>(trace, *devices_.front(), map_);
  gradient_->keep_times();
}

// Sleeps in short pieces, so that it ends soon after the job.
void Compute::sleep(double seconds) const {
  constexpr double kPiece = 0.02;
  for (; seconds > 0.0 && !over_(); seconds -= kPiece) {
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(seconds, kPiece)));
  }
}

void Compute::begin(int64_t step, std::vector<Range> nodes, std::span<const float> weights) {
  PP_ASSERT(!nodes.empty());
  work_ = {step, std::move(nodes)};
  next_ = 0;
  weights_ = weights;
  hinted_ = {};
  loader_.announce(step, work_.nodes);
}

void Compute::hint(int64_t step, std::vector<Range> nodes) {
  hinted_ = {step, std::move(nodes)};
  loader_.announce(step, hinted_.nodes);
  const int64_t first = hinted_.nodes.front().lo;
  const int64_t ahead = std::min<int64_t>(hinted_.nodes.back().hi - first, Loader::kMaxHints / 2);
  for (int64_t i = 0; i < ahead; ++i) loader_.hint(step, first + i);
}

bool Compute::node(const GradientSum::SliceReady& ready, std::vector<float>& losses,
                   const WeightsNeeded& needed) {
  PP_ASSERT(next_ < work_.nodes.size());
  const int64_t step = work_.step;
  const GradientSum::SliceReady checked = [&](int slice, Payload part) {
    if (device_trace_) device_trace_->copied(*gradient_, slice, now_seconds());
    check_finite(step, slice, part);
    straggling_.lag();
    ready(slice, std::move(part));
    straggling_.resume();
  };
  // waiting for weights does not count as computing
  const WeightsNeeded tensor_needed = [&](size_t tensor) {
    straggling_.lag();
    needed(tensor);
    straggling_.resume();
  };
  const bool is_first = next_ == 0;
  const Range range = work_.nodes[next_++];
  bool whole = false;
  try {
    whole =
        compute({step, range, is_first, checked, needed ? tensor_needed : WeightsNeeded{}}, losses);
  } catch (...) {
    work_ = {};
    for (DeviceStep* device : devices_) device->unstage();
    ahead_.assign(devices_.size(), {});
    throw;
  }
  if (!whole) work_ = {};
  return whole;
}

bool Compute::compute(const Node& node, std::vector<float>& losses) {
  if (team_) return on_devices(node, losses);
  gradient_->begin(node.range.size());
  return devices_.empty() ? on_host(node, losses) : on_device(node, losses);
}

bool Compute::on_host(const Node& node, std::vector<float>& losses) {
  double begin_s = 0.0;
  double forward_s = 0.0;  // when forward ended; 0 if it has not
  const GradientReady tensor_ready = [&](size_t tensor) {
    if (traced() && forward_s == 0.0) forward_s = now_seconds();
    gradient_->bound(tensor, model_.gradient_bound(tensor));
    if (gradient_->in_last_leaf() && !skipped_) gradient_->tensor_ready(tensor, node.ready);
  };
  for (int64_t m = node.range.lo; m < node.range.hi; ++m) {
    if (over_()) return false;
    const MicroBatch& batch = loader_.get(node.step, m);
    data_hash_ += data_hash(node.step, m, batch.indices);
    straggling_.resume();
    forward_s = 0.0;
    if (traced()) begin_s = now_seconds();
    const std::span<float> leaf = gradient_->leaf();
    const Samples samples = batch.view(m != work_.nodes.front().lo);
    const float loss = model_.train(weights_, samples, leaf, tensor_ready, node.needed);
    losses.push_back(skipped_ ? skipped_->take({leaf, loss, losses.size()}, weights_, node.needed)
                              : check_loss(node.step, m, loss));
    // a slice may go out only once the whole micro-batch was checked
    if (skipped_ && gradient_->in_last_leaf()) gradient_->all_ready(node.ready);
    gradient_->end_leaf();
    if (traced()) {
      trace_->add(Trace::kForward, node.step, m, begin_s, forward_s);
      trace_->add(Trace::kBackward, node.step, m, forward_s, now_seconds());
    }
    straggling_.lag();
    count(1);
  }
  gradient_->finish(node.ready);
  return true;
}

void Compute::count(int64_t micro_batches) {
  if (activity_ != nullptr) activity_->add_computed(micro_batches);
}

// The host runs ahead of the device: it enqueues all micro-batches before the first slice is ready.
bool Compute::on_device(const Node& node, std::vector<float>& losses) {
  DeviceStep& device = *devices_.front();
  const GradientReady enqueued = [&](size_t tensor) {
    if (gradient_->in_last_leaf()) gradient_->tensor_ready(tensor, node.ready);
  };
  const double begin_s = traced() ? now_seconds() : 0.0;
  if (device_trace_) device_trace_->begin();
  try {
    straggling_.resume();
    if (node.is_first) device.begin(weights_);
    for (int64_t m = node.range.lo; m < node.range.hi; ++m) {
      if (over_()) {
        device.wait();
        return false;
      }
      stage(0, node.step, m);
      device.run(gradient_->leaf().data(), enqueued, node.needed);
      gradient_->end_leaf();
      count(1);
    }
    stage_ahead();
    gradient_->finish(node.ready);
  } catch (...) {
    device.wait();  // no work of an abandoned node may leak into the next one
    throw;
  }
  stage_ahead();
  add_losses(node, device.wait(), losses);
  if (traced()) {
    trace_->add(Trace::kPart, node.step, node.range.lo, begin_s, now_seconds());
    device_trace_->end(node.step, node.range.lo);
  }
  straggling_.lag();
  return true;
}

// Waits for all weights first: with several devices, waiting layer by layer gains little.
bool Compute::on_devices(const Node& node, std::vector<float>& losses) {
  const double begin_s = traced() ? now_seconds() : 0.0;
  const size_t tensors = node.is_first && node.needed ? model_.table().tensors.size() : 0;
  for (size_t tensor = 0; tensor < tensors; ++tensor) node.needed(tensor);
  std::mutex reading;
  const auto stage_leaf = [&](size_t device, int64_t leaf) {
    const std::lock_guard lock(reading);
    if (over_()) return false;
    stage(device, node.step, node.range.lo + leaf);
    count(1);
    return true;
  };
  straggling_.resume();
  if (node.is_first) team_->begin(weights_);
  std::vector<float> all;
  if (!team_->node(
          node.range.size(), stage_leaf, [this] { stage_ahead(); }, node.ready, all)) {
    return false;
  }
  stage_ahead();
  add_losses(node, all, losses);
  if (traced()) {
    trace_->add(Trace::kPart, node.step, node.range.lo, begin_s, now_seconds());
    team_->trace(node.step, node.range.lo);
  }
  straggling_.lag();
  return true;
}

// Stages this micro-batch as the input of the device's next run.
void Compute::stage(size_t device, int64_t step, int64_t micro_batch) {
  const Ahead ahead = std::exchange(ahead_[device], {});
  if (ahead.step == step && ahead.micro_batch == micro_batch) {
    data_hash_ += ahead.hash;
    return;
  }
  if (ahead.step >= 0) devices_[device]->unstage();
  const MicroBatch& batch = loader_.get(step, micro_batch);
  data_hash_ += data_hash(step, micro_batch, batch.indices);
  devices_[device]->stage(batch.view());
}

// Stages the first micro-batch of each device's next node, if the loader has read it by now; slices
// that are ready to push must not wait for it. Called between nodes, and once all micro-batches of
// a node are enqueued.
void Compute::stage_ahead() {
  const bool is_last = next_ == work_.nodes.size();
  const Work& work = is_last ? hinted_ : work_;
  if (work.nodes.empty()) return;
  const Range node = work.nodes[is_last ? 0 : next_];
  for (size_t device = 0; device < devices_.size(); ++device) {
    const std::optional<int64_t> leaf =
        team_ ? team_->first_leaf(device, node.size()) : std::optional<int64_t>(0);
    if (leaf) stage_ahead(device, work.step, node.lo + *leaf);
  }
}

void Compute::stage_ahead(size_t device, int64_t step, int64_t micro_batch) {
  Ahead& ahead = ahead_[device];
  if (ahead.step >= 0 || !loader_.ready(step, micro_batch)) return;
  const MicroBatch& batch = loader_.get(step, micro_batch);
  devices_[device]->stage(batch.view());
  ahead = {step, micro_batch, data_hash(step, micro_batch, batch.indices)};
}

void Compute::add_losses(const Node& node, std::span<const float> all,
                         std::vector<float>& losses) const {
  PP_ASSERT(std::ssize(all) == node.range.size());
  for (size_t i = 0; i < all.size(); ++i) {
    check_loss(node.step, node.range.lo + static_cast<int64_t>(i), all[i]);
  }
  losses.insert(losses.end(), all.begin(), all.end());
}

double Compute::squares(std::span<const float> sum, int64_t micro_batches) const {
  PP_ASSERT(std::ssize(sum) == whole_.size());
  return whole_.all_squares(sum.data(), static_cast<double>(micro_batches));
}

float Compute::check_loss(int64_t step, int64_t micro_batch, float loss) const {
  if (std::isfinite(loss)) return loss;
  throw Error(ErrorCode::kNotFinite, "[train] the loss of worker " + std::to_string(rank_) +
                                         " at step " + std::to_string(step) + ", micro-batch " +
                                         std::to_string(micro_batch) + " is " +
                                         std::to_string(loss) + advice(job_));
}

void Compute::check_finite(int64_t step, int slice, const Payload& part) const {
  if (team_ ? team_->finite(slice) : gradient_->finite(slice, part)) return;
  const int64_t first = map_.elements(slice).lo;
  const Payload here = team_ ? part : gradient_->on_host(part);
  int64_t i = 0;
  while (std::isfinite(here.floats()[i])) ++i;
  const auto next =
      std::ranges::upper_bound(model_.table().tensors, first + i, {}, &TensorInfo::offset);
  const TensorInfo& found = *(next - 1);
  const std::string what = found.rule == UpdateRule::kAverage ? "batch statistic" : "gradient";
  throw Error(ErrorCode::kNotFinite, "[train] the " + what + " of worker " + std::to_string(rank_) +
                                         " at step " + std::to_string(step) +
                                         " is not finite in tensor " + found.name + advice(job_));
}

}  // namespace pushpull
