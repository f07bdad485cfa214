#include "ps/members/fixed_shares.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "common/job/job.h"
#include "ps/members/message_checks.h"

namespace pushpull {

FixedShares::FixedShares(const WorkSetup& setup) : FixedShares(setup, 0) {}

FixedShares::FixedShares(const WorkSetup& setup, int64_t dispensable)
    : WorkAssignment(setup),
      dispensable_(dispensable),
      table_(setup.shares, setup.job.micro_batches(),
             {setup.barriers.start_step, setup.barriers.end_step}) {
  const auto busy = static_cast<int>(setup.shares * setup.groups.stages());
  if (setup.workers > busy) {
    const int idle = setup.workers - busy;
    const std::string why =
        setup.shares < setup.job.micro_batches()
            ? "a group of stages = " + std::to_string(setup.groups.stages()) + " lacks workers"
            : "a step has only " + counted(setup.shares, "micro-batch", "micro-batches");
    setup.out.notice(counted(idle, "worker has", "workers have") + " nothing to compute: " + why +
                     (idle == 1 ? "; it waits as a spare" : "; they wait as spares"));
  }
  setup.groups.form();
  for (int i = 0; i < setup.shares; ++i) {
    // A term may begin without a worker that the previous term lost.
    if (const uint64_t owner = setup.groups.unit_at(i)) table_.give(static_cast<size_t>(i), owner);
  }
}

void FixedShares::on_commit(const Commit& commit) {
  table_.advance(commit.range, commit.step + commit.steps);
}

bool FixedShares::lose(int64_t now_ms, uint64_t unit, bool reports) {
  return table_.vacate(unit, now_ms, reports);
}

void FixedShares::give(size_t index, uint64_t unit) {
  table_.give(index, unit);
  setup().groups.work_changed(unit);
  const Range range = table_.at(index).range;
  setup().out.notice("micro-batches " + std::to_string(range.lo) + " to " +
                     std::to_string(range.hi - 1) + " go to " + setup().groups.name(unit));
  setup().out.state_changed();
}

void FixedShares::assign() {
  fill_vacant();
  if (!continues() || table_.in_transition()) return;
  while (const std::optional<size_t> index = table_.surplus(setup().groups)) {
    setup().groups.work_changed(table_.at(*index).owner);
    table_.release(*index);
    give(*index, table_.least_loaded(setup().groups, table_.at(*index).steps, INT64_MAX));
  }
}

void FixedShares::on_tick() {
  if (!table_.in_transition()) return cut_anew();
  const int64_t from = cuts_.back().from_step();
  if (held_ && all_confirmed()) {
    held_ = false;
    setup().out.state_changed();
  }
  if (held_ || !servers_have_passed(from)) return;
  table_.retire(from);
  setup().out.state_changed();
  fill();
}

// Server 0 does not have all pushes of the step at its floor, so the weights of the next step do
// not exist; one more step is a margin. In ssp, workers may be further ahead by the bound: once of
// server 0, and once of the member that reported to it.
int64_t FixedShares::first_unbegun_step() const {
  return setup().committed.floor() + 2 + 2 * setup().job.strategy.staleness;
}

void FixedShares::cut_anew() {
  const bool may_grow = continues() && setup().job.strategy.traits().same_bits;
  if (!may_grow || is_paused() || lacks_workers()) return;
  const int64_t units = std::ssize(setup().groups.units());
  const auto shares = static_cast<int>(std::min(units, setup().job.micro_batches()));
  const int64_t from = first_unbegun_step();
  if (shares <= table_.shares() || from >= setup().barriers.end_step) return;
  const size_t before = table_.all().size();
  table_.cut(shares, from);
  // Every worker with a share keeps one.
  for (size_t i = before; i < 2 * before; ++i) table_.give(i, table_.at(i - before).owner);
  for (size_t i = 2 * before; i < table_.all().size(); ++i) {
    table_.give(i, table_.least_loaded(setup().groups, table_.at(i).steps, 1));
  }
  std::set<uint64_t> owners;
  for (const ShareOwner& share : table_.all()) owners.insert(share.owner);
  for (const uint64_t unit : owners) setup().groups.work_changed(unit);
  wire::Cut cut;
  cut.set_from_step(from);
  cut.set_shares(shares);
  cuts_.push_back(cut);
  setup().out.notice("from step " + std::to_string(from) + " on " + std::to_string(shares) +
                     (setup().groups.divides() ? " groups" : " workers") + " share each step");
  setup().out.state_changed();
  announced_version_ = setup().out.state_version();
  held_ = true;
}

// Server 0 lacks a push of the round at its floor, so no worker has all weights for the next round
// (in ssp: for steps beyond the bound), and no other server can be past the barrier there.
int64_t FixedShares::nearest_cut() const {
  const Barriers& barriers = setup().barriers;
  const int64_t floor = setup().committed.floor();
  return barriers.round_end(barriers.round_end(floor)) + setup().job.strategy.staleness;
}

// The server in the coordinator's process receives each State at once.
bool FixedShares::all_confirmed() const {
  const auto& all = setup().members.all();
  return std::all_of(all.begin(), all.end(), [&](const auto& entry) {
    const MemberInfo& member = entry.second;
    const bool server = member.role == wire::ROLE_SERVER;
    if (server ? member.peer.empty() : !has_work(setup().groups.unit_of(entry.first))) return true;
    return member.state_version >= announced_version_;
  });
}

bool FixedShares::servers_have_passed(int64_t step) const {
  const auto& all = setup().members.all();
  return std::all_of(all.begin(), all.end(), [&](const auto& entry) {
    const MemberInfo& member = entry.second;
    if (member.role != wire::ROLE_SERVER || member.rank >= setup().servers_with_slices) return true;
    return (member.peer.empty() ? setup().committed.floor() : member.stats.floor()) >= step;
  });
}

void FixedShares::fill_vacant() {
  int64_t vacant = std::ssize(table_.all()) - table_.owned();
  for (size_t i = 0; i < table_.all().size(); ++i) {
    if (table_.at(i).owner != 0) continue;
    const Range steps = table_.at(i).steps;
    uint64_t best = table_.least_loaded(setup().groups, steps, 1);
    if (best == 0 && continues() && vacant > dispensable_) {
      best = table_.least_loaded(setup().groups, steps, INT64_MAX);
    }
    if (best == 0) continue;
    give(i, best);
    --vacant;
  }
}

// During an evaluation the shares' owners evaluate.
std::vector<uint64_t> FixedShares::unfinished(int64_t step) const {
  std::set<uint64_t> found;
  const int64_t last = table_.all().back().steps.hi;
  for (const ShareOwner& share : table_.all()) {
    const uint64_t unit = share.owner != 0 ? share.owner : share.evaluator;
    const bool done = share.clock >= share.steps.hi && share.steps.hi < last;  // others follow
    if (unit != 0 && share.clock <= step && !done) found.insert(unit);
  }
  return {found.begin(), found.end()};
}

bool FixedShares::may_evaluate(uint64_t unit, int64_t step, int64_t chunk) const {
  return table_.may_evaluate(unit, step, chunk, setup().evaluations.chunks());
}

bool FixedShares::has_work(uint64_t unit) const {
  if (unit == 0) return false;
  return std::any_of(table_.all().begin(), table_.all().end(), [&](const ShareOwner& share) {
    return share.owner == unit || share.evaluator == unit;
  });
}

bool FixedShares::lacks_workers() const {
  // The job continues without a share that has only an evaluator.
  return std::any_of(table_.all().begin(), table_.all().end(), [](const ShareOwner& share) {
    return share.owner == 0 && share.evaluator == 0;
  });
}

std::string FixedShares::overdue(int64_t now_ms) {
  for (const ShareOwner& share : table_.all()) {
    // The job continues without a share that has only an evaluator.
    if (share.owner != 0 || share.evaluator != 0) continue;
    if (now_ms - share.vacant_since_ms <= replacement_timeout_ms()) continue;
    if (is_paused()) return paused_text();
    return "[job] no worker has taken over micro-batches " + std::to_string(share.range.lo) +
           " to " + std::to_string(share.range.hi - 1) +
           " within replacement-timeout = " + seconds_text(replacement_timeout_ms()) + " s" +
           (setup().groups.divides() ? ": its group lacks " + setup().groups.missing() : "");
  }
  return "";
}

void FixedShares::add_to_worker_state(wire::State* state, const MemberInfo& worker) const {
  if (!setup().groups.add_to_worker_state(state, worker.incarnation)) return;
  table_.add_assigned(state, setup().groups.unit_of(worker.incarnation));
  for (wire::Share& share : *state->mutable_assigned()) {
    const Range range{share.lo(), share.hi()};
    if (range.size() == 0) continue;
    // The grant covers all steps of the share: under backup:B the worker learns its first step from
    // servers.
    *share.mutable_grant() =
        setup().grants.make(worker.incarnation, range, {share.first_step(), share.to_step()},
                            {state->group().stage(), state->group().attempt()});
  }
}

void FixedShares::add_to_server_state(wire::State* state) const {
  state->mutable_cuts()->Assign(cuts_.begin(), cuts_.end());
  if (!held_) return;
  // Other weights may be held from an earlier step.
  const int64_t from = cuts_.back().from_step();
  state->set_held_step(state->held_step() > 0 ? std::min(state->held_step(), from) : from);
}

void AllReduceShares::add_to_worker_state(wire::State* state, const MemberInfo& worker) const {
  FixedShares::add_to_worker_state(state, worker);
  const WorkGroups& groups = setup().groups;
  if (!has_work(groups.unit_of(worker.incarnation))) return;  // it needs no peers
  const int stage = groups.divides() ? groups.stage_of(worker.incarnation) : 0;
  for (const ShareOwner& share : table().all()) {
    const std::vector<uint64_t> owners = groups.workers_of(share.owner);
    const MemberInfo* owner =
        owners.empty() ? nullptr : setup().members.find(owners[static_cast<size_t>(stage)]);
    state->add_peer_endpoints(owner == nullptr ? "" : owner->peer_endpoint);
    state->add_peer_incarnations(owner == nullptr ? 0 : owner->incarnation);
    state->add_peer_ranks(owner == nullptr ? -1 : owner->rank);
  }
}

// The owners of shares store the weights, each its part.
void AllReduceShares::add_to_server_state(wire::State* state) const {
  FixedShares::add_to_server_state(state);
  const WorkGroups& groups = setup().groups;
  for (wire::Member& worker : *state->mutable_workers()) {
    const uint64_t unit = groups.unit_of(worker.incarnation());
    for (const ShareOwner& share : table().all()) {
      if (unit == 0 || share.owner != unit) continue;
      worker.set_share(share.index + 1);
      worker.set_stage(groups.divides() ? groups.stage_of(worker.incarnation()) : 0);
    }
  }
}

namespace {

int64_t pushes_of_a_step(const WorkSetup& setup) {
  return setup.shares - setup.job.strategy.backups;
}

}  // namespace

BackupShares::BackupShares(const WorkSetup& setup)
    : FixedShares(setup, setup.job.strategy.backups),
      choice_(setup.servers_with_slices, static_cast<int>(pushes_of_a_step(setup))) {}

void BackupShares::on_chunk(uint64_t /*unit*/, int64_t /*step*/, int64_t /*chunk*/,
                            bool completes) {
  // The next evaluation's barrier waits for this one.
  if (completes) setup().out.state_changed();
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

void BackupShares::give(size_t index, uint64_t unit) {
  // Incomplete evaluations may lack its chunks.
  table().at(index).from_step = evaluated_barrier();
  FixedShares::give(index, unit);
}

void BackupShares::assign() {
  FixedShares::assign();
  if (continues()) find_evaluators();
}

void BackupShares::find_evaluators() {
  for (size_t i = 0; i < table().all().size(); ++i) {
    ShareOwner& share = table().at(i);
    if (share.owner != 0 || share.evaluator != 0) continue;
    share.evaluator = table().least_loaded(setup().groups, share.steps, INT64_MAX);
    if (share.evaluator == 0) return;
    setup().groups.work_changed(share.evaluator);
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
