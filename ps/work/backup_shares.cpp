#include "ps/work/backup_shares.h"

#include <utility>
#include <vector>

#include "common/job/job.h"
#include "ps/members/message_checks.h"

namespace pushpull {

namespace {

int64_t pushes_of_a_step(const WorkSetup& setup) {
  return setup.shares - setup.job.strategy.backups;
}

}  // namespace

BackupShares::BackupShares(const WorkSetup& setup)
    : FixedShares(setup, setup.job.strategy.backups),
      choice_(setup.servers_with_slices, static_cast<int>(pushes_of_a_step(setup))) {}

void BackupShares::on_evaluation_complete() {
  // The next evaluation's barrier waits for this one.
  setup().out.state_changed();
}

Checked BackupShares::on_arrived(const MemberInfo& server, const wire::Arrived& arrived) {
  if (Checked refusal = check_step(setup().barriers, arrived.step(), server)) return refusal;
  if (is_paused() || !choice_.take(arrived)) return std::nullopt;
  Message message;
  *message.header.mutable_chosen() = *choice_.chosen();
  if (choice_.fixed_now()) {
    setup().out.send_to_servers(setup().members, message);
  } else {
    setup().out.send(server.peer, std::move(message));
  }
  return std::nullopt;
}

int64_t BackupShares::evaluated_barrier() const {
  const Barriers& barriers = setup().barriers;
  if (setup().evaluations.complete(barriers.end_step)) return barriers.end_step;
  const auto& newest = setup().evaluations.newest();
  return newest ? newest->step : barriers.start_step;
}

void BackupShares::give(size_t index, uint64_t incarnation) {
  // Incomplete evaluations may lack its chunks.
  table().at(index).from_step = evaluated_barrier();
  FixedShares::give(index, incarnation);
}

void BackupShares::assign() {
  FixedShares::assign();
  if (continues()) find_evaluators();
}

void BackupShares::find_evaluators() {
  for (size_t i = 0; i < table().all().size(); ++i) {
    ShareOwner& share = table().at(i);
    if (share.owner != 0 || share.evaluator != 0) continue;
    share.evaluator = table().least_loaded(setup().members, share.steps, INT64_MAX);
    if (share.evaluator == 0) return;
    share.from_step = evaluated_barrier();
    setup().out.state_changed();
  }
}

void BackupShares::add_to_server_state(wire::State* state) const {
  FixedShares::add_to_server_state(state);
  state->set_evaluated_barrier(evaluated_barrier());
}

int64_t BackupShares::samples_at(int64_t /*barrier*/) const {
  return setup().committed.counts().samples;
}

std::string BackupShares::closing_notice() const {
  const std::vector<int64_t>& dropped = setup().committed.counts().pushes_dropped_per_worker;
  std::string text;
  for (size_t rank = 0; rank < dropped.size(); ++rank) {
    if (dropped[rank] == 0) continue;
    text += (text.empty() ? "dropped " + counted(dropped[rank], "push", "pushes")
                          : ", " + std::to_string(dropped[rank])) +
            " of worker " + std::to_string(rank);
  }
  return text.empty() ? "" : text + ": their steps used other pushes";
}

}  // namespace pushpull
