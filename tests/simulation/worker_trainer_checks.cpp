// WorkerTrainer: its use of shared memory, and the checks of the weights that it computes on.
#include <algorithm>
#include <cstring>
#include <set>

#include "tests/simulation/worker_node.h"
#include "tests/simulation/worker_trainer.h"

namespace pushpull::sim {

void WorkerTrainer::plan_sharing() {
  const Sharing& sharing = cluster_.scenario().sharing;
  if (!sharing.on || !cluster_.dice().chance(sharing.workers)) return;
  const auto change = [this](int server, bool shared, int64_t at_ms) {
    process_.later(at_ms * 1000, [this, server, shared] {
      changes_.emplace_back(server, shared);
      turn();
    });
  };
  for (int server = 0; server < std::ssize(servers_); ++server) {
    int64_t at_ms = cluster_.dice().between(0, sharing.late_ms);
    if (sharing.late_ms == 0) {
      changes_.emplace_back(server, true);
    } else {
      change(server, true, at_ms);
    }
    if (!cluster_.dice().chance(sharing.ends)) continue;
    at_ms += cluster_.dice().between(1, cluster_.dice().chance(0.5) ? 50 : 2000);
    change(server, false, at_ms);
    if (sharing.again) change(server, true, at_ms + cluster_.dice().between(1, 500));
  }
}

// Returns true if this worker is no longer a member, so that no server keeps weights that it reads
// in place.
bool WorkerTrainer::given_up() const {
  const Coordinator& coordinator = cluster_.coordinator();
  const bool gone = coordinator.barriers().end_step == 0;  // a restarted one knows nothing yet
  if (gone || coordinator.run() != process_.member().run()) return true;
  return cluster_.scenario().sharing.on &&
         !cluster_.coordinator().members().all().contains(process_.member().incarnation());
}

// Checks the counts in the weights.
void WorkerTrainer::check_weights(const Task& task, bool exact) {
  if (!cluster_.scenario().counting || given_up()) return;
  const Job& job = cluster_.scenario().job;
  const Barriers barriers{job.eval_every, job.checkpoint_every,
                          cluster_.coordinator().barriers().start_step,
                          cluster_.coordinator().barriers().end_step};
  int64_t from = exact ? task.step : barriers.last(task.step);
  if (job.strategy.kind == StrategyKind::kSsp) {
    from = std::max(from, task.step - job.strategy.staleness);
  }
  const int64_t to = exact ? task.step : barriers.end_step;
  const std::string what = cluster_.toy().check_counts(push_pull_->weights(), from, to);
  if (what.empty()) return;
  cluster_.wrong("worker " + std::to_string(number_) + " at step " + std::to_string(task.step) +
                 (exact ? " (evaluation): " : ": ") + what);
}

// Checks that weights in a server's memory did not change before the next pull.
void WorkerTrainer::check_unchanged() {
  if (!cluster_.scenario().sharing.on || given_up()) return;
  const std::span<const float> now = push_pull_->weights();
  if (std::memcmp(now.data(), read_.data(), now.size_bytes()) == 0) return;
  cluster_.wrong("worker " + std::to_string(number_) + " computed on weights that have changed");
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

// Staleness is measured by the versions in a push: they must equal the updates in the weights.
void WorkerTrainer::check_read_versions(const std::vector<ToServer>& messages) {
  if (!cluster_.scenario().counting || given_up() || cluster_.recoveries > 0) return;
  const auto start = cluster_.start_state();
  const Barriers& barriers = cluster_.coordinator().barriers();
  cluster_.chosen_checkpoints.insert(barriers.chosen.begin(), barriers.chosen.end());
  const int64_t shares = process_.member().state().shares();
  for (const ToServer& out : messages) {
    if (!out.message.header.exchange().has_push()) continue;
    const wire::Push& push = out.message.header.exchange().push();
    const Range slice =
        push_pull_->slices().elements(push_pull_->slices().slices_of(out.server)[0]);
    const auto weights = push_pull_->weights().subspan(static_cast<size_t>(slice.lo));
    const int64_t pushes =
        cluster_.toy().count_shares(weights, start ? start->step : 0, static_cast<int>(shares));
    const int64_t updates = updates_of(pushes, cluster_.scenario().job.strategy.buffer, barriers,
                                       cluster_.chosen_checkpoints, shares) +
                            (start ? start->updates : 0);
    const int64_t claimed = push.read_versions(out.server);
    if (updates == claimed) continue;
    cluster_.wrong("worker " + std::to_string(number_) + " has read " + std::to_string(updates) +
                   " updates and says " + std::to_string(claimed));
  }
}

}  // namespace pushpull::sim
