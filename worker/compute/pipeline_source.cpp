#include "worker/compute/pipeline_source.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/layout/tensor_table.h"

namespace pushpull {

namespace {

constexpr auto kOverPoll = std::chrono::milliseconds(20);

}  // namespace

PipelineSource::PipelineSource(Pipeline& pipeline, const TensorTable& table, const SliceMap& map,
                               MicroBatches& batches, FloatAllocator memory)
    : batches_(batches),
      progress_(elements_of(table), map),
      pool_(static_cast<size_t>(map.total()), std::move(memory)),
      tensors_(table.tensors.size()),
      stages_(pipeline.stages()) {
  for (size_t s = 0; s < stages_.size(); ++s) {
    PipelineStage& model = pipeline.stage(s);
    stages_[s].model = &model;
    stages_[s].tensors = model.tensors();
    stages_[s].figures.layers = model.layers();
    if (model.forward_writes()) forward_writes_ = true;
    if (s + 1 == stages_.size()) continue;
    stages_[s].boundary = std::make_unique<BufferPool>(model.output_floats(), heap_floats);
  }
  for (size_t s = 0; s < stages_.size(); ++s) {
    stages_[s].thread = std::thread([this, s] { loop(s); });
  }
}

PipelineSource::~PipelineSource() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = given_up_ = true;
  }
  changed_.notify_all();
  for (Stage& stage : stages_) stage.thread.join();
}

void PipelineSource::set_trace(Trace& trace) {
  if (!trace.on()) return;
  trace_ = &trace;
  std::vector<std::string> names;
  for (size_t s = 0; s < stages_.size(); ++s) names.push_back("stage " + std::to_string(s));
  trace.set_devices(std::move(names));
}

bool PipelineSource::finite(int /*slice*/, const Payload& part) const {
  return all_finite(part.floats(), static_cast<int64_t>(part.float_count()));
}

std::vector<StageTotals> PipelineSource::stages() const {
  std::vector<StageTotals> out;
  for (const Stage& stage : stages_) out.push_back(stage.figures);
  return out;
}

// ---- the trainer's thread ----

void PipelineSource::begin(const NodeWork& work) {
  const int64_t leaves = work.range.size();
  if (std::ssize(merges_) != leaves) merges_ = merges_of(leaves);
  progress_.begin();
  sum_.reset();
  const std::lock_guard lock(mutex_);
  work_ = &work;
  leaves_.clear();
  leaves_.resize(static_cast<size_t>(leaves));
  samples_here_ = 0;
  weights_here_ = 0;
  ready_.clear();
  error_ = nullptr;
  given_up_ = false;
  working_ = stages_.size();
  ++nodes_;
  for (Stage& stage : stages_) {
    if (work.is_first()) stage.model->new_weights();
    stage.outputs.clear();
    stage.input_gradients.clear();
    stage.stack.clear();
    stage.passes.clear();
  }
  changed_.notify_all();
}

void PipelineSource::publish_samples(const NodeWork& work) {
  for (int64_t m = work.range.lo; m < work.range.hi && !batches_.over(); ++m) {
    auto batch = stages_.back().model->prepare(batches_.get(work.step, m).view());
    const std::lock_guard lock(mutex_);
    leaves_[static_cast<size_t>(samples_here_++)].batch = std::move(batch);
    changed_.notify_all();
  }
}

// Stages compute meanwhile on what is here.
void PipelineSource::publish_weights(const NodeWork& work) {
  for (size_t tensor = 0; work.needed && tensor < tensors_; ++tensor) {
    work.needed(tensor);
    const std::lock_guard lock(mutex_);
    weights_here_ = tensor + 1;
    changed_.notify_all();
  }
  const std::lock_guard lock(mutex_);
  weights_here_ = tensors_;
  changed_.notify_all();
}

bool PipelineSource::pass_on(const NodeWork& work) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait_for(lock, kOverPoll,
                      [&] { return !ready_.empty() || working_ == 0 || given_up_; });
    while (!ready_.empty() && !given_up_) {
      const Range done = progress_.done(ready_.front());
      ready_.pop_front();
      sum_ = leaves_.back().gradient;
      lock.unlock();
      for (auto slice = static_cast<int>(done.lo); slice < done.hi; ++slice) {
        work.ready(slice, slice_of(sum_, progress_.map(), slice));
      }
      lock.lock();
    }
    if (given_up_ || (working_ == 0 && ready_.empty())) return !given_up_;
    if (batches_.over()) return false;
  }
}

void PipelineSource::settle(bool give_up) {
  std::unique_lock lock(mutex_);
  if (give_up) given_up_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return working_ == 0; });
  work_ = nullptr;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

bool PipelineSource::node(const NodeWork& work, std::vector<float>& losses) {
  const double begin_s = now_seconds();
  begin(work);
  bool whole = false;
  try {
    publish_samples(work);
    publish_weights(work);
    whole = pass_on(work);
  } catch (...) {
    const std::exception_ptr thrown = std::current_exception();
    try {
      settle(true);
    } catch (...) {  // the first one counts
    }
    std::rethrow_exception(thrown);
  }
  settle(!whole);
  for (int64_t m = work.range.lo; m < work.range.hi; ++m) {
    const float loss = leaves_[static_cast<size_t>(m - work.range.lo)].loss;
    losses.push_back(batches_.checked_loss(work.step, m, loss));
  }
  if (!whole) return false;
  const double end_s = now_seconds();
  for (Stage& stage : stages_) stage.figures.span += end_s - begin_s;
  if (trace_ == nullptr) return true;
  trace_->add(Trace::kPart, work.step, work.range.lo, begin_s, end_s);
  add_traces(work);
  return true;
}

void PipelineSource::add_traces(const NodeWork& work) {
  for (size_t s = 0; s < stages_.size(); ++s) {
    for (const TracedPass& pass : stages_[s].passes) {
      trace_->add(pass.action.forward ? Trace::kDeviceForward : Trace::kDeviceBackward, work.step,
                  work.range.lo + pass.action.micro_batch, pass.begin_s, pass.end_s, 0,
                  static_cast<uint8_t>(s));
    }
  }
}

// ---- the threads of stages ----

template <class Here>
void PipelineSource::await(std::unique_lock<std::mutex>& lock, Here here) {
  changed_.wait(lock, [&] { return given_up_ || here(); });
  if (given_up_) throw GivenUp{};
}

void PipelineSource::loop(size_t stage) {
  for (int64_t node = 1;; ++node) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || nodes_ >= node; });
      if (ends_) return;
    }
    std::exception_ptr error;
    try {
      run(stage);
    } catch (const GivenUp&) {
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    if (error && !error_) error_ = error;
    if (error) given_up_ = true;
    --working_;
    changed_.notify_all();
  }
}

void PipelineSource::run(size_t s) {
  Stage& stage = stages_[s];
  int64_t in_flight = 0;
  for (const StageAction& action : stage.model->actions(std::ssize(leaves_))) {
    in_flight += action.forward ? 1 : -1;
    stage.figures.slots_max = std::max(stage.figures.slots_max, in_flight);
    action.forward ? forward(s, action.micro_batch) : backward(s, action.micro_batch);
  }
}

PipelineStage::Pass PipelineSource::pass(size_t stage, int64_t micro_batch) const {
  const Leaf& leaf = leaves_[static_cast<size_t>(micro_batch)];
  const auto slots = static_cast<int64_t>(stages_[stage].model->slots());
  const bool differ = !work_->stage_weights.empty();
  return {differ ? std::span<const float>(work_->stage_weights[stage]) : work_->weights,
          {leaf.gradient.get(), leaf.gradient ? pool_.floats() : 0},
          leaf.batch.get(),
          static_cast<size_t>(micro_batch % slots)};
}

void PipelineSource::forward(size_t s, int64_t m) {
  Stage& stage = stages_[s];
  Buffer input;
  PipelineStage::Pass pass_of;
  bool weights_arrive = false;
  {
    std::unique_lock lock(mutex_);
    await(lock, [&] { return samples_here_ > m && (s == 0 || !stages_[s - 1].outputs.empty()); });
    if (s > 0) {
      input = std::move(stages_[s - 1].outputs.front());
      stages_[s - 1].outputs.pop_front();
    }
    Leaf& leaf = leaves_[static_cast<size_t>(m)];
    if (!leaf.gradient && forward_writes_) leaf.gradient = pool_.get();
    pass_of = pass(s, m);
    weights_arrive = weights_here_ < tensors_;
  }
  double waited_s = 0.0;
  const WeightsNeeded needed = [&](size_t tensor) {
    const double since_s = now_seconds();
    std::unique_lock lock(mutex_);
    await(lock, [&] { return weights_here_ > tensor; });
    waited_s += now_seconds() - since_s;
  };
  const Buffer output = stage.boundary ? stage.boundary->get() : nullptr;
  const double begin_s = now_seconds();
  stage.model->forward(pass_of, input.get(), output.get(),
                       weights_arrive ? needed : WeightsNeeded{});
  const double end_s = now_seconds();
  stage.figures.busy += end_s - begin_s - waited_s;
  if (trace_ != nullptr) stage.passes.push_back({{true, m}, begin_s, end_s});
  if (input) stage.figures.bytes_in += stages_[s - 1].boundary->floats() * sizeof(float);
  if (output) stage.figures.bytes_out += stage.boundary->floats() * sizeof(float);
  const float loss = output ? 0.0F : stage.model->loss(pass_of);
  const std::lock_guard lock(mutex_);
  if (output) {
    stage.outputs.push_back(output);
  } else {
    leaves_[static_cast<size_t>(m)].loss = loss;
    if (!std::isfinite(loss)) given_up_ = true;  // node() names it
  }
  changed_.notify_all();
}

void PipelineSource::backward(size_t s, int64_t m) {
  Stage& stage = stages_[s];
  Buffer gradient;
  PipelineStage::Pass pass_of;
  {
    std::unique_lock lock(mutex_);
    if (stage.boundary) {
      await(lock, [&] { return !stages_[s + 1].input_gradients.empty(); });
      gradient = std::move(stages_[s + 1].input_gradients.front());
      stages_[s + 1].input_gradients.pop_front();
    }
    if (given_up_) throw GivenUp{};
    Leaf& leaf = leaves_[static_cast<size_t>(m)];
    if (!leaf.gradient) leaf.gradient = pool_.get();
    pass_of = pass(s, m);
    stage.stack.push_back(leaf.gradient);
  }
  const Buffer before = s > 0 ? stages_[s - 1].boundary->get() : nullptr;
  const double begin_s = now_seconds();
  const bool is_last = m + 1 == std::ssize(leaves_);
  stage.model->backward(pass_of, gradient.get(), before.get(), [&](size_t tensor) {
    if (is_last) tensor_ready(stage, tensor, m);
  });
  if (before) {  // the stage before goes on while this one adds
    const std::lock_guard lock(mutex_);
    stage.input_gradients.push_back(before);
    changed_.notify_all();
  }
  if (!is_last) end_leaf(stage, m);
  const double end_s = now_seconds();
  stage.figures.busy += end_s - begin_s;
  if (trace_ != nullptr) stage.passes.push_back({{false, m}, begin_s, end_s});
  if (gradient) stage.figures.bytes_in += stage.boundary->floats() * sizeof(float);
  if (before) stage.figures.bytes_out += stages_[s - 1].boundary->floats() * sizeof(float);
  if (s == 0) batches_.count_computed(1);
  const std::lock_guard lock(mutex_);
  Leaf& leaf = leaves_[static_cast<size_t>(m)];
  if (++leaf.added == stages_.size() && !is_last) leaf.gradient.reset();
}

// Sums a tensor of the node's last micro-batch, as GradientSum::tensor_ready.
void PipelineSource::tensor_ready(Stage& stage, size_t tensor, int64_t m) {
  const auto merges = static_cast<size_t>(merges_[static_cast<size_t>(m)]);
  PP_ASSERT(merges + 1 == stage.stack.size());
  for (size_t i = 0; i < merges; ++i) {
    add_range(stage.stack[stage.stack.size() - 2 - i].get(), stage.stack.back().get(),
              progress_.elements(tensor));
  }
  const std::lock_guard lock(mutex_);
  ready_.push_back(tensor);
  changed_.notify_all();
}

// Sums after an earlier micro-batch, as GradientSum::end_leaf.
void PipelineSource::end_leaf(Stage& stage, int64_t m) {
  std::vector<Buffer>& stack = stage.stack;
  for (int i = 0; i < merges_[static_cast<size_t>(m)]; ++i) {
    const Buffer right = std::move(stack.back());
    stack.pop_back();
    for (const size_t tensor : stage.tensors) {
      add_range(stack.back().get(), right.get(), progress_.elements(tensor));
    }
    stack.back() = right;
  }
}

}  // namespace pushpull
