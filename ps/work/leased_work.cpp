#include "ps/work/leased_work.h"

namespace pushpull {

LeasedWork::LeasedWork(const WorkSetup& setup)
    : WorkAssignment(setup),
      pool_(setup.barriers, setup.shares, setup.job.micro_batches(), setup.evaluations.chunks(),
            setup.grants) {}

void LeasedWork::on_commit(const Commit& commit) {
  pool_.finish_training(commit.incarnation, commit.step, commit.range);
}

void LeasedWork::on_barrier_open(int64_t step) { pool_.open_barrier(step); }

void LeasedWork::on_chunk(uint64_t incarnation, int64_t step, int64_t chunk) {
  pool_.finish_evaluation(incarnation, step, chunk);
}

bool LeasedWork::lose(int64_t /*now_ms*/, const MemberInfo& worker) {
  pool_.lose(worker.incarnation);
  return worker.rank >= 0;
}

std::string LeasedWork::overdue(int64_t now_ms) {
  if (!lacks_workers()) {
    empty_since_ms_ = -1;
    return "";
  }
  if (empty_since_ms_ < 0) empty_since_ms_ = now_ms;
  if (now_ms - empty_since_ms_ <= replacement_timeout_ms()) return "";
  return "[job] no worker is left, and none has joined within replacement-timeout = " +
         seconds_text(replacement_timeout_ms()) + " s";
}

std::vector<wire::Lease> LeasedWork::leases(const MemberInfo& worker) {
  if (worker.rank < 0) return {};
  return pool_.grant(worker.incarnation);
}

}  // namespace pushpull
