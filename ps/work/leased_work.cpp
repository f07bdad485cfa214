#include "ps/work/leased_work.h"

#include "common/job/job.h"

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
    lacking_since_ms_ = -1;
    return "";
  }
  if (lacking_since_ms_ < 0) lacking_since_ms_ = now_ms;
  return now_ms - lacking_since_ms_ <= replacement_timeout_ms() ? "" : paused_text();
}

void LeasedWork::assign() {
  for (const auto& [incarnation, member] : setup().members.all()) {
    if (member.role == wire::ROLE_WORKER && member.rank >= 0) pool_.relieve(incarnation);
  }
}

// A worker that waits for another server does not ask server 0 for leases.
void LeasedWork::add_to_worker_state(wire::State* state, const MemberInfo& worker) const {
  for (wire::Lease& lease : pool_.held(worker.incarnation)) *state->add_leases() = std::move(lease);
}

std::vector<wire::Lease> LeasedWork::leases(const MemberInfo& worker) {
  if (worker.rank < 0) return {};
  return is_paused() ? pool_.held(worker.incarnation) : pool_.grant(worker.incarnation);
}

}  // namespace pushpull
