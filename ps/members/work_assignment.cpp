#include "ps/members/work_assignment.h"

#include <algorithm>

#include "common/job/job.h"
#include "ps/members/fixed_shares.h"
#include "ps/members/lease_pool.h"

namespace pushpull {

Checked WorkAssignment::on_arrived(const MemberInfo& server, const wire::Arrived& /*arrived*/) {
  return refused("no-choice", "a strategy that chooses the pushes of a step",
                 "Arrived from " + server.name() + " under " + setup_.job.strategy.to_string());
}

std::vector<wire::Lease> WorkAssignment::leases(const MemberInfo& /*worker*/) { return {}; }

int64_t WorkAssignment::samples_at(int64_t barrier) const {
  // Counting commits would miss a push that opens the barrier and is reported later.
  return setup_.samples_before + (barrier - setup_.barriers.start_step) * setup_.job.global_batch;
}

int64_t WorkAssignment::workers_with_rank() const {
  const auto& all = setup_.members.all();
  return std::count_if(all.begin(), all.end(), [](const auto& entry) {
    return entry.second.role == wire::ROLE_WORKER && entry.second.rank >= 0;
  });
}

bool WorkAssignment::continues() const {
  return shares_out_ || setup_.job.on_worker_loss == OnWorkerLoss::kContinue;
}

bool WorkAssignment::is_paused() const {
  return continues() && workers_with_rank() < setup_.job.min_workers;
}

void WorkAssignment::fill() {
  const int64_t workers = workers_with_rank();
  if (is_paused() && workers > 0 && !was_paused_) {
    setup_.out.notice("training is paused with " + counted(workers, "worker") +
                      ", fewer than min-workers = " + std::to_string(setup_.job.min_workers) +
                      ": it waits for more, up to replacement-timeout = " +
                      seconds_text(replacement_timeout_ms()) + " s");
  } else if (!is_paused() && was_paused_) {
    setup_.out.notice("training goes on with " + counted(workers, "worker"));
  }
  was_paused_ = is_paused();
  if (was_paused_) return;
  setup_.groups.form();
  assign();
}

void WorkAssignment::share_out() {
  shares_out_ = true;
  fill();
  shares_out_ = false;
}

std::string WorkAssignment::paused_text() const {
  const std::string seconds = seconds_text(replacement_timeout_ms());
  const int64_t left = workers_with_rank();
  if (left == 0) {
    return "[job] no worker is left, and none has joined within replacement-timeout = " + seconds +
           " s";
  }
  return "[job] training is paused with " + counted(left, "worker") +
         ", fewer than min-workers = " + std::to_string(setup_.job.min_workers) +
         ", and not enough have joined within replacement-timeout = " + seconds + " s";
}

int64_t WorkAssignment::replacement_timeout_ms() const {
  return static_cast<int64_t>(setup_.job.replacement_timeout_s * 1000);
}

std::unique_ptr<WorkAssignment> make_work_assignment(const WorkSetup& setup) {
  const StrategyTraits& traits = setup.job.strategy.traits();
  if (traits.leases) return std::make_unique<LeasedWork>(setup);
  if (!traits.whole_steps) return std::make_unique<BackupShares>(setup);
  if (traits.workers_update) return std::make_unique<AllReduceShares>(setup);
  return std::make_unique<FixedShares>(setup);
}

}  // namespace pushpull
