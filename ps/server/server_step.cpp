// Server: the update of a whole step. sync waits for the tree over all micro-batches; local:H for
// the changes of all shares over a round; backup:B for the pushes that the coordinator has chosen.
#include <algorithm>
#include <cmath>

#include "common/base/error.h"
#include "common/update/schedule.h"
#include "ps/server/server.h"

namespace pushpull {

// Shares ascend: the index is the number of shares that begin before.
int64_t Server::share_index(Range range) const {
  int index = 0;
  while (share_range(index, setup_.shares, leaves_).lo < range.lo) ++index;
  return index;
}

void Server::add_step_part(int slice, int64_t step, PartialSum part) {
  if (step != shard_.version(slice)) return;  // this update is done: the part came twice
  if (!sums_.add(slice, std::move(part))) return;
  due_slices_.push_back(slice);
  due_bytes_ += shard_.elements(slice) * static_cast<int64_t>(sizeof(float));
}

const std::vector<PartialSum>& Server::step_parts(int slice) const {
  return backup() ? backups_.parts(slice) : sums_.parts(slice);
}

// Of the tree along which the parts are summed.
int64_t Server::step_leaves() const {
  if (backup()) return backups_.pushes();
  return local() ? setup_.shares : leaves_;
}

// Micro-batches in the sum, which for local:H are those of one step: every share's change is
// weighted by the micro-batches of the share.
double Server::step_divisor() const {
  return static_cast<double>(backup() ? backups_.micro_batches() : leaves_);
}

void Server::apply_step(std::span<const int> slices, double clip) {
  UpdateInfo info;
  info.learning_rate = local() ? setup_.job.outer_lr
                               : learning_rate(setup_.job.schedule, floor_, setup_.total_steps);
  info.divisor = step_divisor();
  info.clip = clip;
  info.changes = local();
  const int64_t versions = setup_.barriers.round_end(floor_) - floor_;
  updates_now_.clear();
  for (const int slice : slices) updates_now_.push_back({slice, step_parts(slice)});
  shard_.apply(updates_now_, step_leaves(), info, versions, *parallel_);
  if (!backup()) {
    for (const int slice : slices) sums_.clear(slice);
  }
  applied_slices_ += std::ssize(slices);
}

void Server::advance_floor() {
  if (applied_slices_ < static_cast<int64_t>(shard_.slices().size())) return;
  applied_slices_ = 0;
  if (backup()) end_backup_step();
  floor_ = setup_.barriers.round_end(floor_);
  ++updates_;
  ++(*stats_.mutable_staleness())[0];
  try_open_barrier();
}

void Server::start_norms() {
  norms_.emplace();
  norms_->set_incarnation(setup_.incarnation);
  norms_->set_step(floor_);
  updates_now_.clear();
  for (const int slice : shard_.slices()) updates_now_.push_back({slice, step_parts(slice)});
  for (const NormPart& part :
       shard_.norms(updates_now_, step_leaves(), step_divisor(), *parallel_)) {
    wire::NormNode* node = norms_->add_nodes();
    node->set_lo(part.blocks.lo);
    node->set_hi(part.blocks.hi);
    node->set_squares(part.squares);
  }
}

void Server::on_norm_total(const wire::NormTotal& total) {
  if (!norms_ || norms_->step() != total.step()) return;
  norms_.reset();
  const double clip = clip_factor(total.norm(), setup_.job.clip_norm);
  apply_step(shard_.slices(), clip);
  advance_floor();
  answer_all();
}

// ---- backup:B ----

// Its step is made of other pushes.
bool Server::too_late(int64_t step) const {
  return backup() && (step < floor_ || backups_.decided());
}

void Server::finish_backup_push(Assembly assembly) {
  const Range range = assembly.range;
  if (too_late(assembly.step)) {
    Commit commit{assembly.incarnation, assembly.step, range, std::move(assembly.losses), false};
    // who took a share over has computed again what was taken of the one before
    const bool twice = assembly.step == floor_
                           ? backups_.has_taken(range.lo)
                           : assembly.step + 1 == floor_ && backups_.had_taken(range.lo);
    commit.dropped = !twice;
    if (observer_ != nullptr) observer_->on_commit(commit);
    return;
  }
  if (!backups_.add({assembly.incarnation, range, std::move(assembly.parts),
                     std::move(assembly.losses), assembly.data_hash})) {
    return;
  }
  arrived_.emplace();
  arrived_->set_incarnation(setup_.incarnation);
  arrived_->set_step(floor_);
  for (const int64_t lo : backups_.complete()) arrived_->add_lo(static_cast<int32_t>(lo));
}

void Server::on_chosen(const wire::Chosen& chosen) {
  if (!backup() || chosen.step() != floor_) return;
  if (!backups_.choose({chosen.lo().begin(), chosen.lo().end()})) return;
  arrived_.reset();
  if (setup_.job.clip_norm > 0) {
    start_norms();
    return;
  }
  apply_step(shard_.slices(), 1.0);
  advance_floor();
  answer_all();
}

void Server::end_backup_step() {
  BackupSet::Done done = backups_.take();
  const std::vector<int64_t> reads(static_cast<size_t>(setup_.servers), floor_);
  for (const BackupSet::Push& push : done.counted) {
    const auto worker = workers_.find(push.incarnation);
    log_push(worker == workers_.end() ? -1 : worker->second.rank, floor_, push.range, reads, false);
  }
  if (observer_ == nullptr) return;
  const auto tell = [&](BackupSet::Push& push, bool counted) {
    observer_->on_commit({push.incarnation, floor_, push.range, std::move(push.losses), counted,
                          push.data_hash, !counted});
  };
  for (BackupSet::Push& push : done.counted) tell(push, true);
  for (BackupSet::Push& push : done.dropped) tell(push, false);
}

// The newest that may be handed out. Where the newest barrier is still closed, that is the version
// before: a worker that is behind must not wait for a barrier that waits for its evaluation.
int64_t Server::newest_version() const {
  if (open_barrier_ >= setup_.barriers.last(floor_)) return floor_;
  return shard_.slices().empty() ? -1 : shard_.previous_version(shard_.slices().front());
}

// A pull for exactly one version that is gone: the worker shall look anew at once.
bool Server::is_past(const wire::Pull& pull) const {
  return backup() && !pull.latest() && !pull.barrier() && !shard_.slices().empty() &&
         shard_.previous_version(shard_.slices().front()) > pull.clock();
}

}  // namespace pushpull
