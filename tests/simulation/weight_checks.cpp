#include "tests/simulation/weight_checks.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

namespace pushpull::sim {

void WeightChecks::wrong(const std::string& what) const {
  cluster_.wrong("worker " + std::to_string(number_) + " " + what);
}

bool WeightChecks::given_up() const {
  const Coordinator& coordinator = cluster_.coordinator();
  const bool gone = coordinator.barriers().end_step == 0;  // a restarted one knows nothing yet
  // a worker that was stopped may still compute a task of an earlier term
  const uint64_t term = push_pull_ == nullptr ? member_.term_id() : push_pull_->setup().term_id;
  if (gone || coordinator.term_id() != term) return true;
  return cluster_.scenario().sharing.on &&
         !cluster_.coordinator().members().all().contains(member_.incarnation());
}

void WeightChecks::received(const Message& message) {
  const wire::Weights& weights = message.header.weights();
  if (weights.slices_size() > 0 && weights.slices(0).slice() == 0) {
    first_slice_ = message.payloads.front().bytes.data();
  }
}

void WeightChecks::read(std::span<const float> weights) {
  if (std::as_bytes(weights).data() == first_slice_) ++cluster_.in_place_tasks;
  if (push_pull_->setup().servers > 1 && push_pull_->weights_in_place()) {
    ++cluster_.side_by_side_tasks;
  }
  read_.assign(weights.begin(), weights.end());
}

void WeightChecks::count(int64_t step, bool exact) const {
  if (!cluster_.scenario().counting || given_up()) return;
  const Job& job = cluster_.scenario().job;
  if (exact && job.eval_ema) return;  // averages contain steps in part
  const Barriers barriers{job.eval_every, job.checkpoint_every,
                          cluster_.coordinator().barriers().start_step,
                          cluster_.coordinator().barriers().end_step};
  int64_t from = exact ? step : barriers.last(step);
  if (job.strategy.kind == StrategyKind::kSsp) {
    from = std::max(from, step - job.strategy.staleness);
  }
  const int64_t to = exact ? step : barriers.end_step;
  for (const Range& elements : elements_) {
    const std::string what = cluster_.toy().check_counts(read_, elements, from, to);
    if (what.empty()) continue;
    return wrong("at step " + std::to_string(step) + (exact ? " (evaluation): " : ": ") + what);
  }
}

void WeightChecks::unchanged(std::span<const float> weights) const {
  for (const Range& elements : elements_) {
    const auto lo = static_cast<size_t>(elements.lo);
    const auto bytes = static_cast<size_t>(elements.size()) * sizeof(float);
    if (std::memcmp(weights.data() + lo, read_.data() + lo, bytes) == 0 || given_up()) continue;
    return wrong("computed on weights that have changed");
  }
}

// Returns the number of updates that a server makes of so many counted pushes, or -1 if that is
// impossible. Under buffered:K an update is K pushes, or the rest at a barrier, also at the one at
// which the run stops. K is 1 elsewhere.
//   chosen: all chosen checkpoints; `barriers` has the newest two.
static int64_t updates_of(int64_t pushes, int64_t k, const Barriers& barriers,
                          const std::set<int64_t>& chosen, int64_t shares) {
  const auto next = [&](int64_t step) {
    const auto behind = chosen.upper_bound(step);
    const int64_t stop = barriers.stop_step > step ? barriers.stop_step : barriers.end_step;
    const int64_t first = std::min(barriers.next(step), stop);
    return behind == chosen.end() ? first : std::min(first, *behind);
  };
  int64_t updates = 0;
  for (int64_t step = barriers.start_step; step < barriers.end_step; step = next(step)) {
    const int64_t most = (next(step) - step) * shares;
    if (pushes < most) return pushes % k == 0 ? updates + pushes / k : -1;
    updates += (most + k - 1) / k;
    pushes -= most;
  }
  return pushes == 0 ? updates : -1;
}

// Returns the elements of a slice of the server that the worker reads.
std::optional<Range> WeightChecks::slice_read(int server) const {
  for (const int slice : push_pull_->slices().slices_of(server)) {
    const Range elements = push_pull_->slices().elements(slice);
    const auto reads = [&](const Range& r) { return r.lo < elements.hi && elements.lo < r.hi; };
    if (std::ranges::any_of(elements_, reads)) return elements;
  }
  return std::nullopt;
}

// Staleness is measured by the versions in a push: they must equal the updates in the weights.
void WeightChecks::sent(const std::vector<ToServer>& messages) {
  if (!cluster_.scenario().counting || given_up() || cluster_.recoveries > 0) return;
  const auto start = cluster_.start_state();
  const Barriers& barriers = cluster_.coordinator().barriers();
  cluster_.chosen_checkpoints.insert(barriers.chosen.begin(), barriers.chosen.end());
  const int64_t shares = member_.state().shares();
  for (const ToServer& out : messages) {
    if (!out.message.header.exchange().has_push()) continue;
    const wire::Push& push = out.message.header.exchange().push();
    newest_push_ = std::max(newest_push_, push.number());
    if (push.number() <= sent_through_) continue;
    const std::optional<Range> slice = slice_read(out.server);
    if (!slice) continue;
    const auto weights = push_pull_->weights().subspan(static_cast<size_t>(slice->lo));
    const int64_t pushes =
        cluster_.toy().count_shares(weights, start ? start->step : 0, static_cast<int>(shares));
    const int64_t updates = updates_of(pushes, cluster_.scenario().job.strategy.buffer, barriers,
                                       cluster_.chosen_checkpoints, shares) +
                            (start ? start->updates : 0);
    const int64_t claimed = push.read_versions(out.server);
    if (updates == claimed) continue;
    wrong("has read " + std::to_string(updates) + " updates and says " + std::to_string(claimed));
  }
}

}  // namespace pushpull::sim
