// Server: what async and ssp do with one push.
#include <algorithm>

#include "common/base/error.h"
#include "ps/aggregation/async_update.h"
#include "ps/server/server.h"

namespace pushpull {

// A push names, for every server, the version of the weights that it was computed on.
bool Server::reads_fit(const wire::Push& push) const {
  const auto& reads = push.read_versions();
  if (reads.size() != setup_.servers) return false;
  if (std::any_of(reads.begin(), reads.end(), [](int64_t version) { return version < 0; })) {
    return false;
  }
  // nobody can have read of us what we have not had
  const int64_t read = push.read_versions(setup_.rank);
  return lockstep() || (read >= setup_.updates && read <= updates_);
}

void Server::log_push(int rank, int64_t step, Range range, std::span<const int64_t> reads,
                      bool uncompensated) {
  if (setup_.job.record.empty()) return;
  wire::Applied applied;
  applied.set_rank(rank);
  applied.set_step(step);
  applied.set_lo(static_cast<int32_t>(range.lo));
  applied.set_hi(static_cast<int32_t>(range.hi));
  applied.mutable_read_versions()->Add(reads.begin(), reads.end());
  applied.set_uncompensated(uncompensated);
  log_.add(std::move(applied));
}

void Server::apply_push(Assembly& assembly) {
  const auto found = workers_.find(assembly.incarnation);
  PP_ASSERT(found != workers_.end());  // `on_state` works first
  Worker& worker = found->second;
  const int64_t read = assembly.reads[static_cast<size_t>(setup_.rank)];
  const int64_t staleness = updates_ - read;
  const UpdateInfo info = async_update(
      setup_.job, setup_.total_steps, {assembly.step, assembly.range, assembly.squares, staleness});
  const std::map<int, Payload>* base = worker.handed.find(read);
  if (base != nullptr && base->size() != shard_.slices().size()) base = nullptr;
  updates_now_.clear();
  for (const auto& [slice, part] : assembly.parts) {
    const float* weights = base == nullptr ? nullptr : base->at(slice).address();
    updates_now_.push_back({slice, std::span(&part, 1), weights});
  }
  shard_.apply(updates_now_, leaves_, info, 1, *parallel_);
  log_push(worker.rank, assembly.step, assembly.range, assembly.reads,
           setup_.job.delay_compensation > 0 && base == nullptr);
  worker.handed.forget_before(read);
  ++(*stats_.mutable_staleness())[staleness];
  ++updates_;
}

}  // namespace pushpull
