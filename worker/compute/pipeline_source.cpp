#include "worker/compute/pipeline_source.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/layout/tensor_table.h"

namespace pushpull {

namespace {

constexpr auto kOverPoll = std::chrono::milliseconds(20);

Payload payload_of(const std::shared_ptr<float[]>& buffer, size_t floats) {
  return {buffer, std::as_bytes(std::span<const float>(buffer.get(), floats))};
}

const float* floats_or_null(const Payload& payload) {
  return payload.owner ? payload.floats() : nullptr;
}

}  // namespace

// ---- preparation ----

PipelineSource::PipelineSource(Pipeline& pipeline, const TensorTable& table, const SliceMap& map,
                               MicroBatches& batches, FloatAllocator memory)
    : group_(nullptr),
      exchange_(nullptr),
      table_(table),
      map_(map),
      batches_(batches),
      pool_(static_cast<size_t>(map.total()), std::move(memory)) {
  std::vector<PipelineStage*> models;
  for (size_t s = 0; s < pipeline.stages(); ++s) models.push_back(&pipeline.stage(s));
  read_.resize(table.tensors.size());
  std::iota(read_.begin(), read_.end(), size_t{0});
  places_.assign(read_.begin(), read_.end());
  progress_.emplace(elements_of(table), map);
  set_stages(models);
}

PipelineSource::PipelineSource(GroupStage& group, const TensorTable& table, const SliceMap& map,
                               MicroBatches& batches, StageExchange& exchange,
                               FloatAllocator memory)
    : group_(&group),
      exchange_(&exchange),
      table_(table),
      map_(map),
      batches_(batches),
      memory_(std::move(memory)),
      pool_(static_cast<size_t>(map.total())) {}

PipelineSource::~PipelineSource() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = given_up_ = true;
  }
  changed_.notify_all();
  for (Stage& stage : stages_) {
    if (stage.thread.joinable()) stage.thread.join();
  }
}

// A worker keeps the number of its stages.
void PipelineSource::set_stages(const std::vector<PipelineStage*>& models) {
  const bool are_new = stages_.empty();
  if (are_new) stages_ = std::vector<Stage>(models.size());
  PP_ASSERT(stages_.size() == models.size());
  const FloatAllocator at_ends = exchange_ != nullptr ? exchange_->memory() : heap_floats;
  const auto pool = [](size_t floats, const FloatAllocator& memory) {
    return floats > 0 ? std::make_shared<BufferPool>(floats, memory) : nullptr;
  };
  forward_writes_ = false;
  std::shared_ptr<BufferPool> before = pool(models.front()->input_floats(), at_ends);
  for (size_t s = 0; s < stages_.size(); ++s) {
    Stage& stage = stages_[s];
    PipelineStage& model = *models[s];
    const bool is_last = s + 1 == stages_.size();
    stage.model = &model;
    stage.figures = {.layers = model.layers()};
    stage.places.clear();
    for (const size_t tensor : model.tensors()) {
      if (places_[tensor]) stage.places.push_back(*places_[tensor]);
    }
    if (is_last && behind_) stage.places.push_back(*behind_);
    stage.before = before;
    stage.behind = pool(model.output_floats(), is_last ? at_ends : heap_floats);
    before = stage.behind;
    if (model.forward_writes()) forward_writes_ = true;
  }
  if (!are_new || is_alone()) return;
  for (size_t s = 0; s < stages_.size(); ++s) {
    stages_[s].thread = std::thread([this, s] { loop(s); });
  }
}

// The sum has a place for each tensor of the stage, and one for all elements behind them in the stage's
// last block, whose gradients come from stages behind.
void PipelineSource::follow() {
  const std::vector<PipelineStage*> models = group_->planned();
  if (stage_ != group_->stage()) {
    stage_ = group_->stage();
    first_local_ = -1;
    parts_ = stage_parts(table_, map_, group_->tensors_read(), stage_);
    read_ = group_->tensors_read().at(static_cast<size_t>(stage_));
    places_.assign(table_.tensors.size(), std::nullopt);
    std::vector<Range> places;
    for (const size_t tensor : read_) {
      const TensorInfo& info = table_.tensors[tensor];
      const Range here{std::max({info.offset, parts_.owned.lo, parts_.own.lo}),
                       std::min(info.offset + info.size, parts_.own.hi)};
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
    progress_.emplace(std::move(places), map_);
    sum_sent_.reset();
    sent_.reset();
    if (parts_.owned.size() > 0) sent_.emplace(static_cast<size_t>(parts_.owned.size()), memory_);
    returns_.clear();
    for (const StageParts::Returned& part : parts_.returns) {
      returns_.push_back({part, BufferPool(part.floats(), exchange_->memory())});
    }
    set_stages(models);
  }
  for (size_t s = 0; s < stages_.size(); ++s) stages_[s].model = models[s];
  if (first_local_ == group_->first_local()) return;
  first_local_ = group_->first_local();
  name_rows();
}

void PipelineSource::set_trace(Trace& trace) {
  if (!trace.on()) return;
  trace_ = &trace;
  name_rows();
}

void PipelineSource::name_rows() {
  if (trace_ == nullptr || stages_.empty()) return;
  std::vector<std::string> names;
  for (size_t s = 0; s < stages_.size(); ++s) {
    names.push_back("stage " + std::to_string(std::max(first_local_, 0) + static_cast<int>(s)));
  }
  trace_->set_devices(std::move(names));
}

bool PipelineSource::finite(int /*slice*/, const Payload& part) const {
  return all_finite(part.floats(), static_cast<int64_t>(part.float_count()));
}

std::vector<StageTotals> PipelineSource::stages() const {
  std::vector<StageTotals> out;
  for (const Stage& stage : stages_) out.push_back(stage.figures);
  const auto unknown = [](const StageTotals& stage) { return stage.layers == 0; };
  if (group_ != nullptr && std::ranges::all_of(out, unknown)) out.clear();
  return out;
}

// ---- the trainer's thread ----

void PipelineSource::clear() {
  leaves_.clear();
  ready_.clear();
  outgoing_.clear();
  for (Stage& stage : stages_) {
    stage.inputs.clear();
    stage.gradients.clear();
    stage.stack.clear();
    stage.passes.clear();
  }
}

void PipelineSource::begin(const NodeWork& work) {
  const int64_t leaves = work.range.size();
  if (std::ssize(merges_) != leaves) merges_ = merges_of(leaves);
  progress_->begin();
  sum_.reset();
  sum_sent_.reset();  // goes back to the pool, unless servers still read it
  if (sent_) sum_sent_ = sent_->get();
  inputs_ = gradients_ = gathered_bytes_ = 0;
  gathered_ = 0;
  aside_s_ = 0.0;
  const std::lock_guard lock(mutex_);
  clear();
  work_ = &work;
  leaves_.resize(static_cast<size_t>(leaves));
  samples_here_ = 0;
  weights_here_ = 0;
  error_ = nullptr;
  given_up_ = false;
  working_ = stages_.size();
  ++nodes_;
  for (Stage& stage : stages_) {
    if (work.is_first()) stage.model->new_weights();
    stage.waits_for = nullptr;
    stage.works = true;
  }
  changed_.notify_all();
}

// Each sample counts once in the hash of a group.
void PipelineSource::read_sample(int64_t m) {
  const int64_t number = work_->range.lo + m;
  const MicroBatch& samples =
      is_last_worker() ? batches_.get(work_->step, number) : batches_.read(work_->step, number);
  auto batch = stages_.back().model->prepare(samples.view(number != work_->first));
  const std::lock_guard lock(mutex_);
  leaves_[static_cast<size_t>(m)].batch = std::move(batch);
  samples_here_ = m + 1;
  changed_.notify_all();
}

void PipelineSource::publish_samples() {
  for (int64_t m = 0; m < work_->range.size() && !batches_.over(); ++m) {
    read_sample(m);
    exchange_parts();
  }
}

// Stages compute meanwhile on what is here.
void PipelineSource::publish_weights() {
  for (size_t i = 0; work_->needed && i < read_.size(); ++i) {
    work_->needed(read_[i]);
    {
      const std::lock_guard lock(mutex_);
      weights_here_ = read_[i] + 1;
      changed_.notify_all();
    }
    exchange_parts();
  }
  const std::lock_guard lock(mutex_);
  weights_here_ = table_.tensors.size();
  changed_.notify_all();
}

bool PipelineSource::compute_alone() try {
  run(0);
  return true;
} catch (const GivenUp&) {
  return false;
}

bool PipelineSource::attend() {
  std::unique_lock lock(mutex_);
  while (true) {
    lock.unlock();
    exchange_parts();
    pass_on_slices();
    lock.lock();
    if (given_up_ || batches_.over()) return false;
    if (!ready_.empty() || !outgoing_.empty()) continue;
    if (working_ == 0) return true;
    if (exchange_ != nullptr) {
      wait_for_parts(lock);
    } else {
      changed_.wait_for(lock, kOverPoll,
                        [&] { return !ready_.empty() || working_ == 0 || given_up_; });
    }
  }
}

void PipelineSource::pass_on_slices() {
  std::unique_lock lock(mutex_);
  while (!ready_.empty() && !given_up_) {
    const Range done = progress_->done(ready_.front());
    ready_.pop_front();
    lock.unlock();
    give(done);
    lock.lock();
  }
}

void PipelineSource::give(Range slices) {
  sum_ = leaves_.back().gradient;
  for (auto slice = static_cast<int>(slices.lo); slice < slices.hi; ++slice) {
    work_->ready(slice, sent(slice));
  }
}

// Memory that other processes read is resident as a whole, so in a group it is not that of the sum.
Payload PipelineSource::sent(int slice) {
  Payload part = slice_of(sum_, map_, slice);
  if (!sum_sent_) return part;
  float* const place = sum_sent_.get() + (map_.elements(slice).lo - parts_.owned.lo);
  std::memcpy(place, part.floats(), part.bytes.size());
  return {sum_sent_, std::as_bytes(std::span<const float>(place, part.float_count()))};
}

std::optional<PipelineSource::Part> PipelineSource::next_input() const {
  if (!stages_.front().before || inputs_ == work_->range.size()) return std::nullopt;
  return Part{stage_ - 1, Kind::KIND_ACTIVATIONS, work_->step, work_->range.lo + inputs_};
}

// The gradients that are returned for a micro-batch come before that of its output.
std::optional<PipelineSource::Next> PipelineSource::next_gradient() const {
  if (gradients_ == work_->range.size()) return std::nullopt;
  const int64_t m = work_->range.lo + gradients_;
  if (gathered_ < parts_.gathered.size()) {
    const StageParts::Returned& part = parts_.gathered[gathered_];
    return Next{{part.stage, Kind::KIND_RETURNED, work_->step, m}, part.floats(), &part};
  }
  const BufferPool* const pool = stages_.back().behind.get();
  if (pool == nullptr) return std::nullopt;
  return Next{{stage_ + 1, Kind::KIND_GRADIENTS, work_->step, m}, pool->floats()};
}

void PipelineSource::take_gradient(const Next& next, Payload part) {
  std::unique_lock lock(mutex_);
  if (next.returned == nullptr) {
    stages_.back().gradients.push_back(std::move(part));
    gathered_ = 0;
    ++gradients_;
    return changed_.notify_all();
  }
  float* const gradient = gradient_of(gradients_).get();
  lock.unlock();  // stages do not touch these elements before the gradient of the output is here
  const float* from = part.floats();
  for (const Range& range : next.returned->ranges) {
    std::copy_n(from, range.size(), gradient + range.lo);
    from += range.size();
  }
  gathered_bytes_ += std::ssize(part.bytes);
  ++gathered_;
}

void PipelineSource::exchange_parts() {
  if (exchange_ == nullptr) return;
  while (const std::optional<Part> next = next_input()) {
    std::optional<Payload> part = exchange_->take(*next, stages_.front().before->floats());
    if (!part) break;
    ++inputs_;
    const std::lock_guard lock(mutex_);
    stages_.front().inputs.push_back(*std::move(part));
    changed_.notify_all();
  }
  while (const std::optional<Next> next = next_gradient()) {
    std::optional<Payload> part = exchange_->take(next->part, next->floats);
    if (!part) break;
    take_gradient(*next, *std::move(part));
  }
  std::unique_lock lock(mutex_);
  while (!outgoing_.empty()) {
    auto [to, floats] = std::move(outgoing_.front());
    outgoing_.pop_front();
    lock.unlock();
    exchange_->send(to, std::move(floats));
    lock.lock();
  }
}

// Waiting does not count as computing.
Payload PipelineSource::receive(const Part& from, size_t floats) {
  batches_.straggling().lag();
  Payload part = exchange_->receive(from, floats);
  batches_.straggling().resume();
  return part;
}

// Waits for the parts without which a stage does not go on.
void PipelineSource::wait_for_parts(std::unique_lock<std::mutex>& lock) {
  const auto waits = [](const Stage& stage, const std::deque<Payload>& for_it) {
    return stage.waits_for == &for_it && for_it.empty();
  };
  std::vector<Part> parts;
  const Stage& first = stages_.front();
  const Stage& last = stages_.back();
  if (waits(first, first.inputs)) {
    if (const auto next = next_input()) parts.push_back(*next);
  }
  if (waits(last, last.gradients)) {
    if (const auto next = next_gradient()) parts.push_back(next->part);
  }
  const bool busy = computes();
  lock.unlock();
  if (!busy) batches_.straggling().lag();
  exchange_->wait(parts, busy);
  if (!busy) batches_.straggling().resume();
  lock.lock();
}

bool PipelineSource::computes() const {
  return std::ranges::any_of(stages_, [](const Stage& stage) {
    return stage.works && (stage.waits_for == nullptr || !stage.waits_for->empty());
  });
}

void PipelineSource::settle(bool give_up) {
  std::unique_lock lock(mutex_);
  if (give_up) given_up_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return working_ == 0; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

bool PipelineSource::node(const NodeWork& work, std::vector<float>& losses) {
  if (group_ != nullptr) follow();
  const double begin_s = now_seconds();
  begin(work);
  bool whole = false;
  if (is_alone()) {
    whole = compute_alone();
  } else {
    try {
      publish_samples();
      publish_weights();
      whole = attend();
    } catch (...) {
      const std::exception_ptr thrown = std::current_exception();
      try {
        settle(true);
      } catch (...) {  // the first one counts
      }
      std::rethrow_exception(thrown);
    }
    settle(!whole);
  }
  for (int64_t m = 0; m < work.range.size() && is_last_worker(); ++m) {
    const float loss = leaves_[static_cast<size_t>(m)].loss;
    losses.push_back(batches_.checked_loss(work.step, work.range.lo + m, loss));
  }
  if (!whole) return false;
  sum_ = leaves_.back().gradient;
  stages_.back().figures.bytes_in += gathered_bytes_;
  const double end_s = now_seconds();
  for (Stage& stage : stages_) stage.figures.span += end_s - begin_s;
  if (trace_ != nullptr) add_traces(begin_s, end_s);
  return true;
}

void PipelineSource::add_traces(double begin_s, double end_s) {
  const NodeWork& work = *work_;
  trace_->add(Trace::kPart, work.step, work.range.lo, begin_s, end_s);
  for (size_t s = 0; s < stages_.size(); ++s) {
    for (const TracedPass& pass : stages_[s].passes) {
      trace_->add(pass.action.forward ? Trace::kDeviceForward : Trace::kDeviceBackward, work.step,
                  work.range.lo + pass.action.micro_batch, pass.begin_s, pass.end_s, 0,
                  static_cast<uint8_t>(s));
    }
  }
}

// ---- the threads of stages ----

// The trainer's thread waits for `changed_` unless it waits for parts.
void PipelineSource::changed() {
  changed_.notify_all();
  if (exchange_ != nullptr && !is_alone()) exchange_->wake();
}

template <class Here>
void PipelineSource::await(std::unique_lock<std::mutex>& lock, Here here) {
  changed_.wait(lock, [&] { return given_up_ || here(); });
  if (given_up_) throw GivenUp{};
}

Payload PipelineSource::await(std::unique_lock<std::mutex>& lock, Stage& stage,
                              std::deque<Payload>& from) {
  stage.waits_for = &from;
  // the trainer's thread only waits from now on
  if (exchange_ != nullptr && !is_alone() && !computes()) exchange_->wake();
  await(lock, [&] { return !from.empty(); });
  stage.waits_for = nullptr;
  Payload payload = std::move(from.front());
  from.pop_front();
  return payload;
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
    stages_[stage].works = false;
    --working_;
    changed();
  }
}

void PipelineSource::run(size_t s) {
  Stage& stage = stages_[s];
  int64_t in_flight = 0;
  for (const StageAction& action : stage.model->actions(std::ssize(leaves_))) {
    if (is_alone() && batches_.over()) throw GivenUp{};
    in_flight += action.forward ? 1 : -1;
    stage.figures.slots_max = std::max(stage.figures.slots_max, in_flight);
    action.forward ? forward(s, action.micro_batch) : backward(s, action.micro_batch);
  }
}

const PipelineSource::Buffer& PipelineSource::gradient_of(int64_t micro_batch) {
  Leaf& leaf = leaves_[static_cast<size_t>(micro_batch)];
  if (!leaf.gradient) leaf.gradient = pool_.get();
  return leaf.gradient;
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
  if (is_alone()) {
    read_sample(m);
    if (const auto next = next_input()) {
      ++inputs_;
      stage.inputs.push_back(receive(*next, stage.before->floats()));
    }
  }
  Payload input;
  PipelineStage::Pass pass_of;
  bool weights_arrive = false;
  {
    std::unique_lock lock(mutex_);
    await(lock, [&] { return samples_here_ > m; });
    if (stage.before) input = await(lock, stage, stage.inputs);
    if (forward_writes_) gradient_of(m);
    pass_of = pass(s, m);
    weights_arrive = weights_here_ < table_.tensors.size();
  }
  double waited_s = 0.0;
  const WeightsNeeded needed = [&](size_t tensor) {
    const double since_s = now_seconds();
    if (is_alone()) {
      work_->needed(tensor);
    } else {
      std::unique_lock lock(mutex_);
      await(lock, [&] { return weights_here_ > tensor; });
    }
    waited_s += now_seconds() - since_s;
  };
  const Buffer output = stage.behind ? stage.behind->get() : nullptr;
  const double begin_s = now_seconds();
  const bool asks = is_alone() ? static_cast<bool>(work_->needed) : weights_arrive;
  stage.model->forward(pass_of, floats_or_null(input), output.get(),
                       asks ? needed : WeightsNeeded{});
  const double end_s = now_seconds();
  stage.figures.busy += end_s - begin_s - waited_s;
  stage.figures.bytes_in += std::ssize(input.bytes);
  if (trace_ != nullptr) stage.passes.push_back({{true, m}, begin_s, end_s});
  if (output) pass_output(s, m, payload_of(output, stage.behind->floats()));
  if (s + 1 < stages_.size() || !is_last_worker()) return;
  const float loss = stage.model->loss(pass_of);
  const std::lock_guard lock(mutex_);
  leaves_[static_cast<size_t>(m)].loss = loss;
  if (std::isfinite(loss)) return;
  given_up_ = true;  // node() names it
  changed();
}

void PipelineSource::pass_output(size_t s, int64_t m, Payload output) {
  stages_[s].figures.bytes_out += std::ssize(output.bytes);
  if (s + 1 == stages_.size()) {
    const int64_t number = work_->range.lo + m;
    return post({stage_ + 1, Kind::KIND_ACTIVATIONS, work_->step, number}, std::move(output));
  }
  const std::lock_guard lock(mutex_);
  stages_[s + 1].inputs.push_back(std::move(output));
  changed_.notify_all();
}

void PipelineSource::pass_gradient(size_t s, int64_t m, Payload gradient) {
  stages_[s].figures.bytes_out += std::ssize(gradient.bytes);
  if (s == 0) {
    const int64_t number = work_->range.lo + m;
    return post({stage_ - 1, Kind::KIND_GRADIENTS, work_->step, number}, std::move(gradient));
  }
  const std::lock_guard lock(mutex_);
  stages_[s - 1].gradients.push_back(std::move(gradient));
  changed_.notify_all();
}

void PipelineSource::post(const Part& to, Payload floats) {
  if (is_alone()) return exchange_->send(to, std::move(floats));
  const std::lock_guard lock(mutex_);
  outgoing_.emplace_back(to, std::move(floats));
  changed();
}

void PipelineSource::backward(size_t s, int64_t m) {
  Stage& stage = stages_[s];
  while (is_alone() && gradients_ == m) {
    const auto next = next_gradient();
    if (!next) break;
    take_gradient(*next, receive(next->part, next->floats));
  }
  if (is_alone() && gradients_ == m) {  // programs pass activations themselves
    ++gradients_;
    gathered_ = 0;
  }
  Payload gradient;
  PipelineStage::Pass pass_of;
  float* flat = nullptr;
  {
    std::unique_lock lock(mutex_);
    await(lock, [] { return true; });
    if (stage.behind) gradient = await(lock, stage, stage.gradients);
    flat = gradient_of(m).get();
    pass_of = pass(s, m);
    stage.stack.push_back(leaves_[static_cast<size_t>(m)].gradient);
  }
  const Buffer before = stage.before ? stage.before->get() : nullptr;
  const double aside_s = aside_s_;
  const double begin_s = now_seconds();
  const bool is_last = m + 1 == std::ssize(leaves_);
  if (is_last && behind_ && s + 1 == stages_.size()) tensor_ready(stage, *behind_, m);
  stage.model->backward(pass_of, floats_or_null(gradient), before.get(), [&](size_t tensor) {
    if (is_last && places_[tensor]) tensor_ready(stage, *places_[tensor], m);
  });
  // the stage before goes on while this one adds
  if (before) pass_gradient(s, m, payload_of(before, stage.before->floats()));
  if (s == 0) send_back(m, flat);
  if (!is_last) end_leaf(stage, m);
  const double end_s = now_seconds();
  stage.figures.busy += end_s - begin_s - (is_alone() ? aside_s_ - aside_s : 0.0);
  stage.figures.bytes_in += std::ssize(gradient.bytes);
  if (trace_ != nullptr) stage.passes.push_back({{false, m}, begin_s, end_s});
  if (s == 0) batches_.count_computed(1);
  const std::lock_guard lock(mutex_);
  Leaf& leaf = leaves_[static_cast<size_t>(m)];
  if (++leaf.added < stages_.size()) return;
  leaf.batch.reset();
  if (!is_last) leaf.gradient.reset();
}

// The first local stage is the last one that writes them.
void PipelineSource::send_back(int64_t m, const float* gradient) {
  for (Return& to : returns_) {
    const Buffer buffer = to.pool.get();
    float* next = buffer.get();
    for (const Range& range : to.part.ranges) {
      next = std::copy_n(gradient + range.lo, range.size(), next);
    }
    Payload floats = payload_of(buffer, to.pool.floats());
    stages_.front().figures.bytes_out += std::ssize(floats.bytes);
    post({to.part.stage, Kind::KIND_RETURNED, work_->step, work_->range.lo + m}, std::move(floats));
  }
}

// Sums a tensor of the node's last micro-batch, as GradientSum::tensor_ready.
void PipelineSource::tensor_ready(Stage& stage, size_t place, int64_t m) {
  const auto merges = static_cast<size_t>(merges_[static_cast<size_t>(m)]);
  PP_ASSERT(merges + 1 == stage.stack.size());
  for (size_t i = 0; i < merges; ++i) {
    add_range(stage.stack[stage.stack.size() - 2 - i].get(), stage.stack.back().get(),
              progress_->elements(place));
  }
  if (is_alone()) {
    const double since_s = now_seconds();
    give(progress_->done(place));
    aside_s_ += now_seconds() - since_s;
    return;
  }
  const std::lock_guard lock(mutex_);
  ready_.push_back(place);
  changed();
}

// Sums after an earlier micro-batch, as GradientSum::end_leaf.
void PipelineSource::end_leaf(Stage& stage, int64_t m) {
  std::vector<Buffer>& stack = stage.stack;
  for (int i = 0; i < merges_[static_cast<size_t>(m)]; ++i) {
    const Buffer right = std::move(stack.back());
    stack.pop_back();
    for (const size_t place : stage.places) {
      add_range(stack.back().get(), right.get(), progress_->elements(place));
    }
    stack.back() = right;
  }
}

}  // namespace pushpull
