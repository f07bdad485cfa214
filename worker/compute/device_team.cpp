#include "worker/compute/device_team.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <utility>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/device/device_name.h"
#include "worker/compute/device_sum.h"
#include "worker/compute/gradient_sum.h"

namespace pushpull {

TeamModel::TeamModel(std::vector<std::unique_ptr<Model>> members) : members_(std::move(members)) {
  PP_ASSERT(!members_.empty());
  table_ = members_.front()->table();
  heads_ = members_.front()->heads();
  for (const auto& member : members_) {
    PP_ASSERT(member->device_step() != nullptr);
    device::check_same_kind(numerics(), member->numerics());
  }
  choose(choices());
}

float TeamModel::train(std::span<const float> weights, const Samples& samples,
                       std::span<float> gradients, const GradientReady& ready,
                       const WeightsNeeded& needed) {
  return members_.front()->train(weights, samples, gradients, ready, needed);
}

void TeamModel::evaluate(std::span<const float> weights, const Samples& samples,
                         std::span<HeadSums> sums) {
  members_.front()->evaluate(weights, samples, sums);
}

size_t TeamModel::arena_bytes() const {
  size_t bytes = 0;
  for (const auto& member : members_) bytes += member->arena_bytes();
  return bytes;
}

size_t TeamModel::slots() const {
  size_t slots = 0;
  for (const auto& member : members_) slots += member->slots();
  return slots;
}

std::vector<DeviceStep*> TeamModel::device_steps() {
  std::vector<DeviceStep*> steps;
  for (const auto& member : members_) steps.push_back(member->device_step());
  return steps;
}

void TeamModel::choose(const std::string& choices) {
  for (const auto& member : members_) {
    if (member->choices() != choices) member->choose(choices);
  }
}

// ---- StagedInputs ----

StagedInputs::StagedInputs(std::vector<DeviceStep*> devices, MicroBatches& batches)
    : devices_(std::move(devices)), batches_(batches), ahead_(devices_.size()) {}

void StagedInputs::stage(size_t device, int64_t step, int64_t micro_batch) {
  const Ahead ahead = std::exchange(ahead_[device], {});
  if (ahead.step == step && ahead.micro_batch == micro_batch) {
    batches_.add_hash(ahead.hash);
    return;
  }
  if (ahead.step >= 0) devices_[device]->unstage();
  devices_[device]->stage(batches_.get(step, micro_batch).view());
}

void StagedInputs::stage_ahead(size_t device, int64_t step, Range node, int64_t index) {
  const int64_t micro_batch = node.lo + index;
  Ahead& ahead = ahead_[device];
  if (node.size() == 0 || ahead.step >= 0 || !batches_.loader().ready(step, micro_batch)) return;
  const MicroBatch& batch = batches_.loader().get(step, micro_batch);
  devices_[device]->stage(batch.view());
  ahead = {step, micro_batch, data_hash(step, micro_batch, batch.indices)};
}

void StagedInputs::clear() {
  for (DeviceStep* device : devices_) device->unstage();
  ahead_.assign(devices_.size(), {});
}

// ---- DeviceTeam ----

DeviceTeam::DeviceTeam(const std::vector<DeviceStep*>& steps, const TensorTable& table,
                       const SliceMap& map, MicroBatches& batches, FloatAllocator memory)
    : table_(table),
      map_(map),
      batches_(batches),
      inputs_(steps, batches),
      threads_(static_cast<int>(steps.size())),
      pool_(static_cast<size_t>(table.total), std::move(memory)),
      finite_(static_cast<size_t>(map.slices())) {
  for (DeviceStep* step : steps) members_.push_back({step, false, {}, {}, nullptr});
}

DeviceTeam::~DeviceTeam() { drain(); }

void DeviceTeam::set_trace(Trace& trace) {
  PP_ASSERT(leaves_ == 0);
  if (!trace.on()) return;
  trace_ = &trace;
  std::vector<std::string> names;
  for (Member& member : members_) {
    member.trace = std::make_unique<DeviceTrace>(trace, *member.step, map_,
                                                 static_cast<uint8_t>(names.size()));
    names.push_back(member.step->device()->name());
  }
  trace.set_devices(std::move(names));
}

// Each device takes a share of the leaves, as workers take shares of a step.
void DeviceTeam::plan(int64_t leaves) {
  if (leaves == leaves_) return;
  leaves_ = leaves;
  parts_.clear();
  const auto members = static_cast<int64_t>(members_.size());
  if (leaves < members && !std::exchange(warned_idle_, true)) {
    Log("worker").warn("a part of " + std::to_string(leaves) + " micro-batches leaves " +
                       std::to_string(members - leaves) + " of " + std::to_string(members) +
                       " devices idle: use a smaller micro-batch or fewer workers");
  }
  for (int64_t i = 0; i < members; ++i) {
    Member& member = members_[static_cast<size_t>(i)];
    member.parts.clear();
    const Range share = share_range(i, members, leaves);
    if (share.size() == 0) continue;
    for (const Range& subtree : maximal_subtrees(share, leaves)) {
      if (member.sums.size() == member.parts.size()) {
        member.sums.push_back(make_device_sum(*member.step, table_, map_));
        if (member.trace) member.sums.back()->keep_times();
      }
      member.parts.push_back(
          {member.step, subtree, member.sums[member.parts.size()].get(), member.trace.get()});
    }
    parts_.insert(parts_.end(), member.parts.begin(), member.parts.end());
  }
}

bool DeviceTeam::enqueue(const NodeWork& work, const Part& part, size_t device) {
  const GradientSum::SliceReady nothing_yet = [](int, const Payload&) { PP_ASSERT(false); };
  part.sum->begin(part.leaves.size());
  for (int64_t leaf = part.leaves.lo; leaf < part.leaves.hi; ++leaf) {
    {
      const std::lock_guard lock(reading_);
      if (batches_.over()) return false;
      inputs_.stage(device, work.step, work.range.lo + leaf);
      batches_.count_computed(1);
    }
    part.step->run(part.sum->leaf().data(), [&](size_t tensor) {
      if (part.sum->in_last_leaf()) part.sum->tensor_ready(tensor, nothing_yet);
    });
    part.sum->end_leaf();
  }
  return true;
}

// Each device enqueues its parts on a thread. Returns false if the work was over before the end.
bool DeviceTeam::enqueue(const NodeWork& work) {
  std::atomic<bool> over = false;
  threads_.run(std::ssize(members_), [&](int64_t index, int /*thread*/) {
    const auto device = static_cast<size_t>(index);
    Member& member = members_[device];
    if (member.parts.empty()) return;
    if (!std::exchange(member.has_begun, true)) member.step->begin(work.weights);
    for (const Part& part : member.parts) {
      if (!enqueue(work, part, device)) over = true;
      if (over) return;
    }
  });
  return !over;
}

// The first micro-batch of each device in the next node.
void DeviceTeam::stage_ahead(const NodeWork& work) {
  const auto members = static_cast<int64_t>(members_.size());
  for (int64_t i = 0; i < members; ++i) {
    const Range share = share_range(i, members, work.next.size());
    if (share.size() == 0) continue;
    inputs_.stage_ahead(static_cast<size_t>(i), work.next_step, work.next, share.lo);
  }
}

bool DeviceTeam::node(const NodeWork& work, std::vector<float>& losses) {
  const double begin_s = trace_ != nullptr ? now_seconds() : 0.0;
  if (work.is_first()) {
    for (size_t tensor = 0; work.needed && tensor < table_.tensors.size(); ++tensor) {
      work.needed(tensor);
    }
    for (Member& member : members_) member.has_begun = false;
  }
  plan(work.range.size());
  for (const Member& member : members_) {
    if (member.trace) member.trace->begin();
  }
  bool whole = false;
  try {
    whole = enqueue(work);
    if (whole) {
      stage_ahead(work);
      add_up(work.ready);
    }
  } catch (...) {
    drain();  // no work of an abandoned node may leak into the next one
    throw;
  }
  if (!whole) {
    drain();
    return false;
  }
  std::vector<float> all;
  for (const Member& member : members_) {
    if (member.parts.empty()) continue;
    const std::span<const float> some = member.step->wait();
    all.insert(all.end(), some.begin(), some.end());
  }
  stage_ahead(work);
  batches_.add_checked(work.step, work.range, all, losses);
  if (trace_ == nullptr) return true;
  trace_->add(Trace::kPart, work.step, work.range.lo, begin_s, now_seconds());
  for (const Member& member : members_) {
    if (member.parts.empty()) continue;
    member.trace->end(work.step, work.range.lo + member.parts.front().leaves.lo);
  }
  return true;
}

// All devices finish slices in backward's order, so one slice is taken from each in turn.
void DeviceTeam::add_up(const GradientSum::SliceReady& ready) {
  sum_ = pool_.get();
  std::vector<std::vector<Payload>> here(static_cast<size_t>(map_.slices()));
  for (auto& payloads : here) payloads.reserve(parts_.size());
  bool more = true;
  while (more) {
    for (const Part& part : parts_) {
      more = part.sum->give_next([&](int slice, Payload payload) {
        if (part.trace != nullptr) part.trace->copied(*part.sum, slice, now_seconds());
        auto& payloads = here[static_cast<size_t>(slice)];
        payloads.push_back(std::move(payload));
        if (payloads.size() < parts_.size()) return;
        add_slice(slice, payloads);
        payloads.clear();
        const Range s = map_.elements(slice);
        const std::span<const float> all(sum_.get() + s.lo, static_cast<size_t>(s.size()));
        ready(slice, {sum_, std::as_bytes(all)});
      });
    }
  }
}

void DeviceTeam::add_slice(int slice, const std::vector<Payload>& payloads) {
  std::vector<TreePart> parts;
  for (size_t i = 0; i < payloads.size(); ++i) {
    parts.push_back({parts_[i].leaves, payloads[i].floats()});
  }
  if (tree_) {
    tree_->begin();
    for (const TreePart& part : parts) tree_->add(part);
    tree_->reset(leaves_);
  } else {
    tree_.emplace(std::move(parts), leaves_);
  }
  const Range s = map_.elements(slice);
  bool finite = true;
  for (int64_t lo = 0; lo < s.size(); lo += TreeSum::kStride) {
    const int64_t n = std::min(TreeSum::kStride, s.size() - lo);
    const float* block = tree_->block(lo, n);
    finite &= all_finite(block, n);
    std::memcpy(sum_.get() + s.lo + lo, block, static_cast<size_t>(n) * sizeof(float));
  }
  finite_[static_cast<size_t>(slice)] = finite;
}

void DeviceTeam::drain() noexcept {
  for (const Member& member : members_) {
    try {
      member.step->wait();
    } catch (const Error&) {  // a failed device has no work left
      continue;
    }
  }
}

namespace {

Trace::Kind kind_of(DeviceSpan::Kind kind) {
  switch (kind) {
    case DeviceSpan::kForward:
      return Trace::kDeviceForward;
    case DeviceSpan::kBackward:
      return Trace::kDeviceBackward;
    case DeviceSpan::kBoth:
      return Trace::kDeviceBoth;
    case DeviceSpan::kInputs:
      return Trace::kDeviceInputs;
    case DeviceSpan::kWeights:
      break;
  }
  return Trace::kDeviceWeights;
}

}  // namespace

DeviceTrace::DeviceTrace(Trace& trace, DeviceStep& step, const SliceMap& map, uint8_t device)
    : trace_(trace), step_(step), map_(map), device_(device) {
  step_.keep_times();
}

void DeviceTrace::begin() {
  clock_s_ = std::numeric_limits<double>::infinity();
  slices_.clear();
}

void DeviceTrace::copied(const GradientSum& sum, int slice, double now_s) {
  slices_.push_back({slice, sum.copied(slice, step_.clock())});
  clock_s_ = std::min(clock_s_, now_s - slices_.back().copied.end_s);
}

void DeviceTrace::end(int64_t step, int64_t first) {
  for (const DeviceSpan& span : step_.spans()) {
    const bool is_weights = span.kind == DeviceSpan::kWeights;
    trace_.add(kind_of(span.kind), step, is_weights ? span.number : first + span.number,
               clock_s_ + span.begin_s, clock_s_ + span.end_s, span.bytes, device_);
  }
  for (const Slice& slice : slices_) {
    const int64_t bytes = map_.elements(slice.slice).size() * static_cast<int64_t>(sizeof(float));
    trace_.add(Trace::kDeviceSlice, step, slice.slice, clock_s_ + slice.copied.begin_s,
               clock_s_ + slice.copied.end_s, bytes, device_);
  }
}

}  // namespace pushpull
