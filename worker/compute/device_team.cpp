#include "worker/compute/device_team.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <utility>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "worker/compute/device_sum.h"
#include "worker/compute/gradient_sum.h"

namespace pushpull {

TeamModel::TeamModel(std::vector<std::unique_ptr<Model>> members) : members_(std::move(members)) {
  PP_ASSERT(!members_.empty());
  table_ = members_.front()->table();
  heads_ = members_.front()->heads();
  for (const auto& member : members_) {
    PP_ASSERT(member->device_step() != nullptr);
    if (member->numerics() == numerics()) continue;
    throw Error(ErrorCode::kUsage,
                "[device] the devices of a worker must be of one kind: one is \"" + numerics() +
                    "\", another \"" + member->numerics() + "\"; start a worker for each");
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

DeviceTeam::DeviceTeam(const std::vector<DeviceStep*>& steps, const TensorTable& table,
                       const SliceMap& map, FloatAllocator memory)
    : table_(table),
      map_(map),
      threads_(static_cast<int>(steps.size())),
      pool_(static_cast<size_t>(table.total), std::move(memory)),
      finite_(static_cast<size_t>(map.slices())) {
  for (DeviceStep* step : steps) members_.push_back({step, false, {}, {}, nullptr});
}

DeviceTeam::~DeviceTeam() { drain(); }

void DeviceTeam::set_trace(Trace& trace) {
  PP_ASSERT(leaves_ == 0);
  std::vector<std::string> names;
  for (Member& member : members_) {
    member.trace = std::make_unique<DeviceTrace>(trace, *member.step, map_,
                                                 static_cast<uint8_t>(names.size()));
    names.push_back(member.step->device()->name());
  }
  trace.set_devices(std::move(names));
}

void DeviceTeam::trace(int64_t step, int64_t first) {
  for (const Member& member : members_) {
    if (!member.parts.empty()) member.trace->end(step, first + member.parts.front().leaves.lo);
  }
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

bool DeviceTeam::enqueue(const Part& part, size_t device, const Stage& stage) {
  const GradientSum::SliceReady nothing_yet = [](int, const Payload&) { PP_ASSERT(false); };
  part.sum->begin(part.leaves.size());
  for (int64_t leaf = part.leaves.lo; leaf < part.leaves.hi; ++leaf) {
    if (!stage(device, leaf)) return false;
    part.step->run(part.sum->leaf().data(), [&](size_t tensor) {
      if (part.sum->in_last_leaf()) part.sum->tensor_ready(tensor, nothing_yet);
    });
    part.sum->end_leaf();
  }
  return true;
}

std::optional<int64_t> DeviceTeam::first_leaf(size_t device, int64_t leaves) const {
  const Range share =
      share_range(static_cast<int64_t>(device), static_cast<int64_t>(members_.size()), leaves);
  return share.size() == 0 ? std::nullopt : std::optional(share.lo);
}

void DeviceTeam::begin(std::span<const float> weights) {
  weights_ = weights;
  for (Member& member : members_) member.has_begun = false;
}

bool DeviceTeam::node(int64_t leaves, const Stage& stage, const std::function<void()>& enqueued,
                      const GradientSum::SliceReady& ready, std::vector<float>& losses) {
  plan(leaves);
  for (const Member& member : members_) {
    if (member.trace) member.trace->begin();
  }
  std::atomic<bool> over = false;
  try {
    threads_.run(std::ssize(members_), [&](int64_t index, int /*thread*/) {
      const auto device = static_cast<size_t>(index);
      Member& member = members_[device];
      if (member.parts.empty()) return;
      if (!std::exchange(member.has_begun, true)) member.step->begin(weights_);
      for (const Part& part : member.parts) {
        if (!enqueue(part, device, stage)) over = true;
        if (over) return;
      }
    });
    if (!over) {
      enqueued();
      add_up(ready);
    }
  } catch (...) {
    drain();  // no work of an abandoned node may leak into the next one
    throw;
  }
  if (over) {
    drain();
    return false;
  }
  for (const Member& member : members_) {
    if (member.parts.empty()) continue;
    const std::span<const float> some = member.step->wait();
    losses.insert(losses.end(), some.begin(), some.end());
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
