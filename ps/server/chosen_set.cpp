#include "ps/server/chosen_set.h"

#include <utility>

#include "common/job/job.h"
#include "common/update/optimizer_options.h"
#include "ps/server/barrier_gate.h"

namespace pushpull {

ChosenSet::ChosenSet(AggregationSetup setup)
    : Aggregation(std::move(setup)), norms_(setup_.job, setup_.incarnation) {
  reserve(1);  // for the next generation
}

void ChosenSet::take_part(ReceivedPush& push, int slice, PartialSum part) {
  if (!too_late(push.step)) push.parts[slice] = std::move(part);
}

void ChosenSet::take_push(ReceivedPush push) {
  if (too_late(push.step)) {
    // The new owner of a share may repeat a push that the previous owner has delivered.
    const bool twice = push.step == floor_
                           ? pushes_.has_taken(push.range.lo)
                           : push.step + 1 == floor_ && pushes_.had_taken(push.range.lo);
    Commit commit = commit_of(push, false);
    commit.dropped = !twice;
    setup_.observer.on_commit(commit);
    return;
  }
  if (!pushes_.add(std::move(push))) return;
  arrived_.emplace();
  arrived_->set_incarnation(setup_.incarnation);
  arrived_->set_step(floor_);
  for (const int64_t lo : pushes_.complete()) arrived_->add_lo(static_cast<int32_t>(lo));
}

bool ChosenSet::on_chosen(const wire::Chosen& chosen) {
  if (chosen.step() != floor_) return false;
  if (!pushes_.choose({chosen.lo().begin(), chosen.lo().end()})) return false;
  arrived_.reset();
  if (norms_.needed()) {
    norms_.add(shard(), sums(), pushes_.pushes(), static_cast<double>(pushes_.micro_batches()),
               setup_.parallel);
    norms_.finish(floor_);
    return false;
  }
  apply();
  return true;
}

bool ChosenSet::on_norm_total(const wire::NormTotal& total) {
  if (!norms_.waiting()) return false;
  const bool complete = norms_.take(total, shard(), sums(), pushes_.pushes(),
                                    static_cast<double>(pushes_.micro_batches()), setup_.parallel);
  if (complete) apply();
  return complete;
}

std::span<const SliceUpdate> ChosenSet::sums() {
  now_.clear();
  for (const int slice : shard().slices()) now_.push_back({slice, pushes_.parts(slice)});
  return now_;
}

void ChosenSet::apply() {
  UpdateInfo info;
  info.learning_rate = rate(floor_, pushes_.learning_rate());
  info.divisor = static_cast<double>(pushes_.micro_batches());
  if (norms_.needed()) norms_.add_factors_to(info);
  shard().apply(sums(), pushes_.pushes(), info, 1, setup_.parallel);
  end_step();
  ++floor_;
  ++updates_;
  ++staleness_[0];
  try_open_barrier();
}

void ChosenSet::end_step() {
  BackupSet::Done done = pushes_.take();
  const std::vector<int64_t> reads(static_cast<size_t>(setup_.servers), floor_);
  for (const ReceivedPush& push : done.counted) {
    record(push, reads, &push != &done.counted.back(), false);
  }
  for (ReceivedPush& push : done.counted) setup_.observer.on_commit(commit_of(push, true));
  for (ReceivedPush& push : done.dropped) {
    Commit commit = commit_of(push, false);
    commit.dropped = true;
    setup_.observer.on_commit(commit);
  }
}

// A worker that lags behind still needs the weights of the previous evaluation.
bool ChosenSet::try_open_barrier() {
  BarrierGate& gate = setup_.gate;
  if (!gate.due(floor_)) return false;
  const bool evaluation = barriers().evaluation_due(floor_);
  const bool again = gate.kept().step == floor_;  // it has become a checkpoint meanwhile
  if (evaluation && !again && gate.kept().step > gate.evaluated()) return false;
  return gate.open(floor_, updates_, evaluation);
}

void ChosenSet::for_waiting(const std::function<void(PartialSum&)>& visit) {
  pushes_.for_parts(visit);
}

// Returns the newest version that pulls may get. While the newest barrier is closed it is the
// previous version: a worker that lags behind must not wait for a barrier that waits for its
// evaluation.
int64_t ChosenSet::newest_version() const {
  if (setup_.gate.passed(floor_)) return floor_;
  return shard().slices().empty() ? -1 : shard().previous_version(shard().slices().front());
}

bool ChosenSet::is_past(const wire::Pull& pull) const {
  return asks_for_one_version(pull) && !shard().slices().empty() &&
         shard().previous_version(shard().slices().front()) > pull.clock();
}

std::optional<SliceAnswer> ChosenSet::answer(const wire::Pull& pull, int slice) const {
  const BarrierGate& gate = setup_.gate;
  const bool allowed = pull.latest() ? newest_version() >= pull.clock() : gate.passed(pull.clock());
  if (!allowed) return std::nullopt;
  if (pull.barrier() && gate.kept().step == pull.clock()) {
    return SliceAnswer{gate.kept().weights.at(slice), gate.kept().updates, true, true};
  }
  const int64_t wanted = asks_for_one_version(pull) ? pull.clock() : newest_version();
  const bool previous = shard().version(slice) != wanted;
  if (previous && shard().previous_version(slice) != wanted) return std::nullopt;
  if (wanted < 0) return std::nullopt;
  return SliceAnswer{.weights = previous ? shard().previous(slice) : shard().weights(slice),
                     .version = wanted,
                     .evaluated = pull.barrier() || barriers().evaluation_due(wanted)};
}

}  // namespace pushpull
