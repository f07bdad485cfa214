#include "ps/server/whole_steps.h"

#include <algorithm>
#include <utility>

#include "common/job/job.h"
#include "common/update/optimizer_options.h"
#include "ps/server/barrier_gate.h"

namespace pushpull {

// ---- StepSums ----

StepSums::StepSums(const std::vector<int>& slices, int64_t micro_batches)
    : leaves_(micro_batches), open_(static_cast<int64_t>(slices.size())) {
  for (const int slice : slices) slices_[slice];
}

bool StepSums::add(int slice, PartialSum part) {
  Slice& s = slices_.at(slice);
  const auto place =
      std::lower_bound(s.parts.begin(), s.parts.end(), part,
                       [](const PartialSum& a, const PartialSum& b) { return a.range < b.range; });
  const auto overlaps = [&](const PartialSum& other) {
    return other.range.lo < part.range.hi && part.range.lo < other.range.hi;
  };
  if (std::any_of(s.parts.begin(), s.parts.end(), overlaps)) return false;
  s.covered += part.range.size();
  s.parts.insert(place, std::move(part));
  if (s.covered < leaves_) return false;
  --open_;
  return true;
}

void StepSums::clear(int slice) {
  Slice& s = slices_.at(slice);
  if (s.covered == leaves_) ++open_;
  s.parts.clear();
  s.covered = 0;
}

// ---- WholeSteps ----

WholeSteps::WholeSteps(AggregationSetup setup, StepSumKind kind)
    : Aggregation(std::move(setup)),
      kind_(kind),
      sums_(shard().slices(), changes() ? setup_.shares : leaves_),
      ledger_(floor_, leaves_),
      norms_(setup_.job, setup_.incarnation) {
  reserve(1);  // for the next generation
}

// Changes are summed by share, so their parts are whole shares.
std::vector<Range> WholeSteps::nodes_of(Range share) const {
  return changes() ? std::vector<Range>{share} : maximal_subtrees(share, leaves_);
}

Checked WholeSteps::check(const wire::Push& push) const { return check_basis(push, push.step()); }

// Shares ascend: the index is the number of shares that begin earlier.
int64_t WholeSteps::share_index(Range range) const {
  int index = 0;
  while (share_range(index, setup_.shares, leaves_).lo < range.lo) ++index;
  return index;
}

void WholeSteps::take_part(ReceivedPush& push, int slice, PartialSum part) {
  if (push.step != shard().version(slice)) return;  // a duplicate: this update is done
  if (changes()) {
    const int64_t index = share_index(part.range);
    part.range = {index, index + 1};
  }
  if (!sums_.add(slice, std::move(part))) return;
  due_.push_back(slice);
  due_bytes_ += shard().elements(slice) * static_cast<int64_t>(sizeof(float));
}

void WholeSteps::take_push(ReceivedPush push) {
  const bool counted = !ledger_.contains(push.step, push.range);
  if (counted) {
    for (int64_t i = 0; i < push.steps; ++i) ledger_.add(push.step + i, push.range);
    if (push.range.lo == 0) said_ = push.learning_rate.value_or(setup_.job.schedule.lr);
  }
  setup_.observer.on_commit(commit_of(push, counted));
}

bool WholeSteps::awaits_rate() const {
  return !changes() && setup_.job.schedule.kind == ScheduleKind::kExternal && !said_;
}

std::span<const SliceUpdate> WholeSteps::sums_of(std::span<const int> slices) {
  now_.clear();
  for (const int slice : slices) now_.push_back({slice, sums_.parts(slice)});
  return now_;
}

// A push may end, with the rate of its worker, after its slices are complete.
bool WholeSteps::apply_due() {
  due_bytes_ = 0;
  if (due_.empty() || awaits_rate()) return false;
  bool opened = false;
  // The workers of local:H clip and scale by themselves.
  if (!changes() && norms_.needed()) {
    norms_.add(shard(), sums_of(due_), sums_.leaves(), static_cast<double>(leaves_),
               setup_.parallel);
    if (sums_.all_complete()) norms_.finish(floor_);
  } else {
    opened = apply(due_, false);
  }
  due_.clear();
  return opened;
}

bool WholeSteps::on_norm_total(const wire::NormTotal& total) {
  const std::vector<int>& all = shard().slices();
  const bool complete = norms_.take(total, shard(), sums_of(all), sums_.leaves(),
                                    static_cast<double>(leaves_), setup_.parallel);
  if (complete) apply(all, true);
  return complete;
}

bool WholeSteps::apply(std::span<const int> slices, bool normed) {
  UpdateInfo info;
  info.learning_rate = changes() ? setup_.job.outer_lr : rate(floor_, said_);
  // Also for changes: each is weighted by the micro-batches of its share in one step.
  info.divisor = static_cast<double>(leaves_);
  if (normed) norms_.add_factors_to(info);
  info.changes = changes();
  const int64_t next = barriers().round_end(floor_);
  shard().apply(sums_of(slices), sums_.leaves(), info, next - floor_, setup_.parallel);
  for (const int slice : slices) sums_.clear(slice);
  applied_slices_ += std::ssize(slices);
  if (applied_slices_ < std::ssize(shard().slices())) return false;
  applied_slices_ = 0;
  said_.reset();
  floor_ = next;
  ++updates_;
  ++staleness_[0];
  return try_open_barrier();
}

bool WholeSteps::try_open_barrier() {
  if (applied_slices_ > 0)
    return false;  // a stop without workers comes late: some slices are a step ahead
  return setup_.gate.due(floor_) && setup_.gate.open(floor_, updates_, false);
}

void WholeSteps::for_waiting(const std::function<void(PartialSum&)>& visit) {
  sums_.for_parts(visit);
}

// A slice is sent as soon as it has the requested version, while other slices still wait for their
// sums. `latest` must not pass a barrier with a snapshot still to come: the push that follows could
// complete the next step.
std::optional<SliceAnswer> WholeSteps::answer(const wire::Pull& pull, int slice) const {
  if (pull.barrier() && barriers().averages) {
    const Snapshot* averages = setup_.gate.averages(pull.clock());
    if (averages == nullptr) return std::nullopt;
    return SliceAnswer{
        .weights = averages->weights.at(slice), .version = pull.clock(), .evaluated = true};
  }
  const int64_t newest = shard().version(slice);
  const int64_t wanted = pull.latest() ? newest : pull.clock();
  const bool previous = wanted != newest && shard().previous_version(slice) == wanted;
  if (wanted != newest && !previous) return std::nullopt;
  const bool open =
      pull.latest() ? setup_.gate.passed(floor_) : setup_.gate.passes_with_update(wanted);
  if (!open) return std::nullopt;
  return SliceAnswer{.weights = previous ? shard().previous(slice) : shard().weights(slice),
                     .version = wanted,
                     .evaluated = pull.barrier() || barriers().evaluation_due(wanted)};
}

}  // namespace pushpull
