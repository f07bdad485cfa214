#include "worker/compute/stage_source.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "common/base/process.h"

namespace pushpull {

StageSource::StageSource(GroupStage& group, const TensorTable& table, const SliceMap& map,
                         MicroBatches& batches, StageExchange& exchange, FloatAllocator memory)
    : group_(group),
      table_(table),
      map_(map),
      batches_(batches),
      exchange_(exchange),
      memory_(std::move(memory)) {}

// The sum has a place for each tensor of the stage, and one for all elements behind them in the stage's
// last block, whose gradients come from stages behind.
void StageSource::follow() {
  if (stage_ == group_.stage()) return;
  stage_ = group_.stage();
  const PipelineStage& model = group_.planned();
  parts_ = stage_parts(table_, map_, group_.tensors_read(), stage_);
  places_.assign(table_.tensors.size(), std::nullopt);
  std::vector<Range> places;
  for (const size_t tensor : model.tensors()) {
    const TensorInfo& info = table_.tensors[tensor];
    const Range here{std::max(info.offset, parts_.owned.lo), info.offset + info.size};
    if (here.lo >= here.hi) continue;
    places_[tensor] = places.size();
    places.push_back(here);
  }
  const Range behind{std::max(parts_.own.hi, parts_.owned.lo), parts_.owned.hi};
  behind_.reset();
  if (behind.lo < behind.hi) {
    behind_ = places.size();
    places.push_back(behind);
  }
  sum_ = make_host_sum(std::move(places), map_);
  sent_.reset();
  outputs_.reset();
  input_gradients_.reset();
  if (parts_.owned.size() > 0) sent_.emplace(static_cast<size_t>(parts_.owned.size()), memory_);
  const FloatAllocator shared = exchange_.memory();
  if (model.output_floats() > 0) outputs_.emplace(model.output_floats(), shared);
  if (model.input_floats() > 0) input_gradients_.emplace(model.input_floats(), shared);
  returns_.clear();
  for (const StageParts::Returned& part : parts_.returns) {
    returns_.push_back({part, BufferPool(part.floats(), shared)});
  }
  figures_ = {.layers = model.layers()};
  if (trace_ != nullptr) trace_->set_devices({"stage " + std::to_string(stage_)});
}

template <class Do>
void StageSource::aside(Do&& action) {
  const double since_s = now_seconds();
  action();
  aside_s_ += now_seconds() - since_s;
}

void StageSource::count(Trace::Kind kind, const NodeWork& work, int64_t m, double begin_s) {
  const double end_s = now_seconds();
  figures_.busy += end_s - begin_s - std::exchange(aside_s_, 0.0);
  if (trace_ != nullptr) trace_->add(kind, work.step, m, begin_s, end_s);
}

Payload StageSource::receive(const StageExchange::Part& from, size_t floats) {
  batches_.straggling().lag();  // waiting does not count as computing
  Payload part = exchange_.receive(from, floats);
  batches_.straggling().resume();
  figures_.bytes_in += std::ssize(part.bytes);
  return part;
}

void StageSource::send(const StageExchange::Part& to, const Buffer& buffer, size_t floats) {
  exchange_.send(to, {buffer, std::as_bytes(std::span<const float>(buffer.get(), floats))});
  figures_.bytes_out += static_cast<int64_t>(floats * sizeof(float));
}

bool StageSource::node(const NodeWork& work, std::vector<float>& losses) {
  follow();
  if (work.is_first()) group_.planned().new_weights();
  const double begin_s = now_seconds();
  in_flight_.clear();
  aside_s_ = 0.0;
  sum_sent_.reset();  // goes back to the pool, unless servers still read it
  if (sent_) sum_sent_ = sent_->get();
  sum_->begin(work.range.size());
  for (const StageAction& action : group_.planned().actions(work.range.size())) {
    if (batches_.over()) return false;
    const int64_t m = work.range.lo + action.micro_batch;
    action.forward ? forward(work, m, losses) : backward(work, m);
  }
  sum_->finish(work.ready);
  const double end_s = now_seconds();
  figures_.span += end_s - begin_s;
  if (trace_ != nullptr) trace_->add(Trace::kPart, work.step, work.range.lo, begin_s, end_s);
  return true;
}

PipelineStage::Pass StageSource::pass(const NodeWork& work, int64_t m, const InFlight& of) {
  const auto slots = static_cast<int64_t>(group_.planned().slots());
  const size_t floats = of.gradient ? static_cast<size_t>(map_.total()) : 0;
  return {work.weights,
          {of.gradient.get(), floats},
          of.batch.get(),
          static_cast<size_t>((m - work.range.lo) % slots)};
}

void StageSource::forward(const NodeWork& work, int64_t m, std::vector<float>& losses) {
  PipelineStage& model = group_.planned();
  // each sample counts once in the hash of a group
  const MicroBatch& samples = is_last() ? batches_.get(work.step, m) : batches_.read(work.step, m);
  InFlight& micro_batch = in_flight_.emplace_back();
  micro_batch.batch = model.prepare(samples.view(m != work.first));
  figures_.slots_max = std::max(figures_.slots_max, std::ssize(in_flight_));
  Payload input;
  if (input_gradients_) {
    input = receive({stage_ - 1, Kind::KIND_ACTIVATIONS, work.step, m}, model.input_floats());
  }
  if (model.forward_writes()) micro_batch.gradient = sum_->take();
  const PipelineStage::Pass pass_of = pass(work, m, micro_batch);
  const Buffer output = outputs_ ? outputs_->get() : nullptr;
  const WeightsNeeded needed = [&](size_t tensor) { aside([&] { work.needed(tensor); }); };
  const double begin_s = now_seconds();
  model.forward(pass_of, input_gradients_ ? input.floats() : nullptr, output.get(),
                work.needed ? needed : work.needed);
  count(Trace::kDeviceForward, work, m, begin_s);
  if (output) {
    send({stage_ + 1, Kind::KIND_ACTIVATIONS, work.step, m}, output, outputs_->floats());
  }
  if (is_last()) {
    losses.push_back(batches_.checked_loss(work.step, m, model.loss(pass_of)));
  }
}

void StageSource::backward(const NodeWork& work, int64_t m) {
  PipelineStage& model = group_.planned();
  InFlight micro_batch = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (!micro_batch.gradient) micro_batch.gradient = sum_->take();
  gather(work, m, micro_batch.gradient.get());
  Payload gradient;
  if (outputs_) {
    gradient = receive({stage_ + 1, Kind::KIND_GRADIENTS, work.step, m}, outputs_->floats());
  }
  const Buffer before = input_gradients_ ? input_gradients_->get() : nullptr;
  const GradientSum::SliceReady ready = [&](int slice, Payload part) {
    aside([&] { work.ready(slice, sent(slice, part)); });
  };
  const double begin_s = now_seconds();
  sum_->leaf(micro_batch.gradient);
  if (sum_->in_last_leaf() && behind_) sum_->tensor_ready(*behind_, ready);
  model.backward(pass(work, m, micro_batch), outputs_ ? gradient.floats() : nullptr, before.get(),
                 [&](size_t tensor) {
                   if (sum_->in_last_leaf() && places_[tensor]) {
                     sum_->tensor_ready(*places_[tensor], ready);
                   }
                 });
  // the stage before goes on while this one adds
  if (before) {
    send({stage_ - 1, Kind::KIND_GRADIENTS, work.step, m}, before, input_gradients_->floats());
  }
  send_back(work, m, micro_batch.gradient.get());
  sum_->end_leaf();
  count(Trace::kDeviceBackward, work, m, begin_s);
  batches_.count_computed(1);
}

// Memory that other processes read is resident as a whole, so it is not flat.
Payload StageSource::sent(int slice, const Payload& part) {
  float* const place = sum_sent_.get() + (map_.elements(slice).lo - parts_.owned.lo);
  std::memcpy(place, part.floats(), part.bytes.size());
  return {sum_sent_, std::as_bytes(std::span<const float>(place, part.float_count()))};
}

void StageSource::gather(const NodeWork& work, int64_t m, float* gradient) {
  for (const StageParts::Returned& part : parts_.gathered) {
    const Payload from = receive({part.stage, Kind::KIND_RETURNED, work.step, m}, part.floats());
    const float* next = from.floats();
    for (const Range& range : part.ranges) {
      std::copy_n(next, range.size(), gradient + range.lo);
      next += range.size();
    }
  }
}

void StageSource::send_back(const NodeWork& work, int64_t m, const float* gradient) {
  for (Return& to : returns_) {
    const Buffer buffer = to.pool.get();
    float* next = buffer.get();
    for (const Range& range : to.part.ranges) {
      next = std::copy_n(gradient + range.lo, range.size(), next);
    }
    send({to.part.stage, Kind::KIND_RETURNED, work.step, m}, buffer, to.pool.floats());
  }
}

}  // namespace pushpull
