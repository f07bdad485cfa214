#include "ps/server/single_pushes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/job/job.h"
#include "common/update/norm.h"
#include "common/update/optimizer_options.h"
#include "common/update/range_update.h"
#include "ps/server/barrier_gate.h"

namespace pushpull {

UpdateInfo async_update(const Job& job, int64_t total_steps, const AsyncPush& push) {
  UpdateInfo info;
  info.learning_rate = learning_rate(job.schedule, push.step, total_steps, push.rate);
  // Zhang et al., Staleness-aware Async-SGD, arXiv 1511.05950. They count staleness from 1, hence 1
  // + staleness.
  if (job.staleness_aware) {
    info.learning_rate /= static_cast<double>(1 + std::max<int64_t>(0, push.staleness));
  }
  info.divisor = static_cast<double>(push.range.size());
  info.share = info.divisor / static_cast<double>(job.micro_batches());
  if (job.clip_norm > 0) info.clip = clip_factor(std::sqrt(push.squares), job.clip_norm);
  info.delay_compensation = job.delay_compensation;
  return info;
}

void HandedWeights::keep(int64_t version, int slice, const Payload& weights) {
  versions_[version].insert_or_assign(slice, weights);
  if (versions_.size() > kMaxVersions) versions_.erase(versions_.begin());
}

const std::map<int, Payload>* HandedWeights::find(int64_t version) const {
  const auto found = versions_.find(version);
  return found == versions_.end() ? nullptr : &found->second;
}

void HandedWeights::forget_before(int64_t version) {
  versions_.erase(versions_.begin(), versions_.lower_bound(version));
}

int64_t needed_floor(std::optional<int64_t> bound, const Barriers& barriers, int64_t clock) {
  const int64_t barrier = barriers.last(clock);
  return bound ? std::max(clock - *bound, barrier) : barrier;
}

SinglePushes::SinglePushes(AggregationSetup setup, std::optional<int64_t> bound)
    : Aggregation(std::move(setup)), bound_(bound), ledger_(floor_, leaves_) {
  reserve(3);  // for the next generation, and two that workers still read
}

Checked SinglePushes::check(const wire::Push& push) const {
  Checked basis = check_basis(push, needed_floor(bound_, barriers(), push.step()));
  // A stage of a group has read nothing of a server without its slices.
  if (basis || (push.grant().attempt() > 0 && push.parts_total() == 0)) return basis;
  // A worker cannot have read a version that this server has not had.
  const int64_t read = push.read_versions(setup_.rank);
  if (read < 0) return {};  // see PushIntake::check
  if (read >= setup_.updates && read <= updates_) return {};
  return refused("push-reads",
                 "a version that this server has had, " + std::to_string(setup_.updates) + " to " +
                     std::to_string(updates_),
                 std::to_string(read));
}

void SinglePushes::take_part(ReceivedPush& push, int slice, PartialSum part) {
  push.parts[slice] = std::move(part);
}

void SinglePushes::take_push(ReceivedPush push) {
  for (const auto& [slice, part] : push.parts) {
    due_bytes_ += static_cast<int64_t>(part.payload.bytes.size());
  }
  due_.push_back(std::move(push));
}

bool SinglePushes::apply_due() {
  due_bytes_ = 0;
  bool opened = false;
  for (ReceivedPush& push : due_) opened = finish(std::move(push)) || opened;
  due_.clear();
  return opened;
}

bool SinglePushes::finish(ReceivedPush push) {
  const bool counted = !ledger_.contains(push.step, push.range);
  Commit commit = commit_of(push, counted);
  if (counted) {
    commit.staleness = updates_ - push.reads[static_cast<size_t>(setup_.rank)];
    ledger_.add(push.step, push.range);
    count(std::move(push));
  }
  setup_.observer.on_commit(commit);
  if (floor_ == ledger_.floor()) return false;
  floor_ = ledger_.floor();
  return try_open_barrier();
}

const std::map<int, Payload>* SinglePushes::base_of(const ReceivedPush& push, int64_t read) const {
  const auto handed = handed_.find(push.incarnation);
  if (handed == handed_.end()) return nullptr;
  const std::map<int, Payload>* base = handed->second.find(read);
  return base == nullptr || base->size() != shard().slices().size() ? nullptr : base;
}

void SinglePushes::count(ReceivedPush push) {
  const int64_t read = push.reads[static_cast<size_t>(setup_.rank)];
  const int64_t staleness = updates_ - read;
  const UpdateInfo info =
      async_update(setup_.job, setup_.total_steps,
                   {push.step, push.range, push.squares, staleness, push.learning_rate});
  const std::map<int, Payload>* base = base_of(push, read);
  now_.clear();
  for (const auto& [slice, part] : push.parts) {
    const float* weights = base == nullptr ? nullptr : base->at(slice).address();
    now_.push_back({slice, std::span(&part, 1), weights});
  }
  shard().apply(now_, leaves_, info, 1, setup_.parallel);
  record(push, push.reads, false, setup_.job.delay_compensation > 0 && base == nullptr);
  const auto handed = handed_.find(push.incarnation);
  if (handed != handed_.end()) handed->second.forget_before(read);
  ++staleness_[staleness];
  ++updates_;
}

bool SinglePushes::try_open_barrier() {
  if (!setup_.gate.due(floor_)) return false;
  flush();
  // A barrier without an evaluation leaves the kept weights: the previous evaluation may still run.
  return setup_.gate.open(floor_, updates_, barriers().evaluation_due(floor_));
}

void SinglePushes::on_answered(uint64_t incarnation, int slice, const SliceAnswer& answer) {
  if (setup_.job.delay_compensation <= 0) return;
  handed_[incarnation].keep(answer.version, slice, answer.weights);
}

void SinglePushes::on_members(const std::map<uint64_t, int>& members) {
  std::erase_if(handed_, [&](const auto& worker) { return !members.contains(worker.first); });
}

// `latest` must not pass a barrier with a snapshot still to come: the push that follows could
// complete the next step.
std::optional<SliceAnswer> SinglePushes::answer(const wire::Pull& pull, int slice) const {
  // the worker has pushed its stage, and other stages of its group may follow
  const Range after{pull.after_lo(), pull.after_hi()};
  if (after.hi > 0 && !ledger_.contains(pull.after_step(), after)) return std::nullopt;
  const BarrierGate& gate = setup_.gate;
  const bool allowed = pull.latest() ? gate.passed(floor_)
                                     : gate.passed(pull.clock()) &&
                                           floor_ >= needed_floor(bound_, barriers(), pull.clock());
  if (!allowed) return std::nullopt;
  if (pull.barrier() && gate.kept().step == pull.clock()) {
    return SliceAnswer{gate.kept().weights.at(slice), gate.kept().updates, true, true};
  }
  return SliceAnswer{
      .weights = shard().weights(slice), .version = updates_, .evaluated = pull.barrier()};
}

}  // namespace pushpull
