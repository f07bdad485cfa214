#include "ps/server/push_intake.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "common/base/buffer_pool.h"
#include "common/job/barriers.h"
#include "ps/engine/shard.h"
#include "ps/server/aggregation.h"

namespace pushpull {

namespace {

// A worker sends one push of each of its shares, then waits until all have arrived. A number
// further ahead is a fault or an attack.
constexpr int64_t kMaxPushesAhead = 16;
// No worker sends that many pushes, and sums with a smaller number do not overflow.
constexpr int64_t kMaxPushes = int64_t{1} << 62;

int64_t steps_of(const wire::Push& push) { return std::max(1, push.steps()); }

std::string share_text(const wire::Push& push) { return range_text(push.lo(), push.hi()); }

// The least size of a message, counted even without payloads.
constexpr int64_t kMinBytes = 1024;

// Counts the memory of the header too: a member may send one of 16 MiB without a payload.
int64_t bytes_of(const EarlyPushes::Early& early) {
  int64_t bytes = std::max(kMinBytes, static_cast<int64_t>(early.exchange.SpaceUsedLong()));
  for (const Payload& payload : early.payloads) bytes += std::ssize(payload.bytes);
  return bytes;
}

bool same(const wire::Exchange& a, const wire::Exchange& b) {
  const wire::Push& p = a.push();
  const wire::Push& q = b.push();
  if (a.sender().incarnation() != b.sender().incarnation() || p.number() != q.number())
    return false;
  if (p.parts_size() != q.parts_size()) return false;
  return p.parts_size() == 0 ||
         (p.parts(0).slice() == q.parts(0).slice() && p.parts(0).lo() == q.parts(0).lo());
}

// Copies a payload that may lie in a worker's memory. One on a device is the engine's (Server::keep_waiting).
void own(Payload& payload) {
  if (payload.on_device) return;
  const size_t floats = (payload.bytes.size() + sizeof(float) - 1) / sizeof(float);
  const std::shared_ptr<float[]> copy = heap_floats(floats);
  std::memcpy(copy.get(), payload.bytes.data(), payload.bytes.size());
  payload = {copy, std::as_bytes(std::span(copy.get(), floats)).first(payload.bytes.size())};
}

}  // namespace

// ---- PushTracker ----

void PushTracker::mark(int64_t number) {
  if (complete(number)) return;
  ahead_.insert(number);
  while (!ahead_.empty() && *ahead_.begin() == through_ + 1) {
    ++through_;
    ahead_.erase(ahead_.begin());
  }
}

void PushTracker::begin_at(int64_t first) {
  if (first <= through_ + 1) return;
  through_ = first - 1;
  while (!ahead_.empty() && *ahead_.begin() <= through_) ahead_.erase(ahead_.begin());
  while (!ahead_.empty() && *ahead_.begin() == through_ + 1) {
    ++through_;
    ahead_.erase(ahead_.begin());
  }
}

// ---- EarlyPushes ----

bool EarlyPushes::keep(Early early) {
  const int64_t step = early.exchange.push().step();
  const auto [begin, end] = waiting_.equal_range(step);
  if (std::any_of(begin, end,
                  [&](const auto& e) { return same(e.second.exchange, early.exchange); }))
    return false;
  early.bytes = bytes_of(early);
  int64_t& bytes = bytes_[early.exchange.sender().incarnation()];
  if (bytes + early.bytes > max_bytes_) return false;
  bytes += early.bytes;
  waiting_.emplace(step, std::move(early));
  return true;
}

std::vector<EarlyPushes::Early> EarlyPushes::take(int64_t step) {
  std::vector<Early> out;
  while (any_of(step)) {
    Early& early = waiting_.begin()->second;
    bytes_[early.exchange.sender().incarnation()] -= early.bytes;
    out.push_back(std::move(early));
    waiting_.erase(waiting_.begin());
  }
  return out;
}

// ---- PushIntake ----

PushIntake::PushIntake(const Division& division, Grants grants, const Barriers& barriers,
                       const Shard& shard, Aggregation& aggregation)
    : micro_batches_(division.micro_batches),
      records_(division.records),
      grants_(std::move(grants)),
      barriers_(barriers),
      shard_(shard),
      aggregation_(aggregation),
      slices_(static_cast<size_t>(shard.map().stages())) {
  for (const int slice : shard.slices()) {
    ++slices_[static_cast<size_t>(shard.map().stage_of(slice))];
  }
  add_cut(barriers.start_step, division.shares);
}

void PushIntake::add_cut(int64_t from_step, int shares) {
  Cut cut{from_step, {}};
  for (int i = 0; i < shares; ++i) {
    const Range range = share_range(i, shares, micro_batches_);
    cut.shares.push_back({range, aggregation_.nodes_of(range)});
  }
  cuts_.push_back(std::move(cut));
}

void PushIntake::on_cuts(const wire::State& state) {
  for (const wire::Cut& cut : state.cuts()) {
    const bool possible = cut.shares() > 0 && cut.shares() <= micro_batches_;
    // a cut before the first step of this server
    if (possible && cut.from_step() <= barriers_.start_step && cuts_.size() == 1) {
      cuts_.clear();
      add_cut(barriers_.start_step, cut.shares());
    }
    if (possible && cut.from_step() > cuts_.back().from_step) {
      add_cut(cut.from_step(), cut.shares());
    }
  }
}

const std::vector<PushIntake::Share>& PushIntake::shares_at(int64_t step) const {
  const auto behind = std::find_if(cuts_.begin() + 1, cuts_.end(),
                                   [&](const Cut& cut) { return cut.from_step > step; });
  return std::prev(behind)->shares;
}

void PushIntake::on_members(const std::map<uint64_t, int>& members) {
  std::erase_if(workers_, [&](const auto& worker) { return !members.contains(worker.first); });
  for (const auto& [incarnation, rank] : members) workers_[incarnation].rank = rank;
}

const PushIntake::Share* PushIntake::share_of(const wire::Push& push) const {
  const std::vector<Share>& shares = shares_at(push.step());
  const auto found = std::find_if(shares.begin(), shares.end(), [&](const Share& share) {
    return share.range == Range{push.lo(), push.hi()};
  });
  return found == shares.end() ? nullptr : &*found;
}

// Checks share and number of a push.
Checked PushIntake::check_place(const Worker& worker, const wire::Push& push) const {
  if (share_of(push) == nullptr) {
    return refused(
        "push-share",
        "one of the " + std::to_string(shares_at(push.step()).size()) + " shares of a step",
        share_text(push));
  }
  if (push.number() < 1 || push.number() > kMaxPushes) {
    return refused("push-number", "1 to " + std::to_string(kMaxPushes),
                   std::to_string(push.number()));
  }
  if (push.first() < 0 || push.first() > push.number()) {
    return refused("push-first", "0 to " + std::to_string(push.number()),
                   std::to_string(push.first()));
  }
  const int64_t through = std::max(worker.pushes.through(), push.first() - 1);
  const int64_t most = through + kMaxPushesAhead + std::ssize(cuts_.back().shares);
  if (push.number() > most) {
    return refused("push-number", "1 to " + std::to_string(most), std::to_string(push.number()));
  }
  const auto open = worker.open.find(push.number());
  if (open != worker.open.end()) {
    const ReceivedPush& begun = open->second.push;
    if (begun.step != push.step() || begun.range != Range{push.lo(), push.hi()} ||
        open->second.stage != push.stage()) {
      return refused("push-other",
                     "more of push " + std::to_string(push.number()) + ", step " +
                         std::to_string(begun.step) + ", share " +
                         range_text(begun.range.lo, begun.range.hi),
                     "step " + std::to_string(push.step()) + ", share " + share_text(push));
    }
  }
  return {};
}

// Each message of a push needs the grant, also the repeat of a complete push: it may raise `first`.
Checked PushIntake::check_early(uint64_t incarnation, const wire::Push& push) const {
  if (push.step() < barriers_.start_step || push.step() >= barriers_.end_step ||
      !barriers_.starts_round(push.step())) {
    return refused(
        "push-step",
        "a step that begins a round in " + range_text(barriers_.start_step, barriers_.end_step),
        std::to_string(push.step()));
  }
  const int64_t end = barriers_.round_end(push.step());
  if (steps_of(push) != end - push.step())
    return refused("push-steps", end - push.step(), steps_of(push));
  if (Checked refusal = check_stage(push)) return refusal;
  return grants_.check(push.grant(), incarnation, {push.lo(), push.hi()}, {push.step(), end},
                       push.stage());
}

Checked PushIntake::check_stage(const wire::Push& push) const {
  if (push.stage() >= 0 && push.stage() < std::ssize(slices_)) return {};
  return refused("push-stage", "one of " + std::to_string(slices_.size()) + " stages",
                 std::to_string(push.stage()));
}

Checked PushIntake::check_lists(const wire::Push& push,
                                const std::vector<Payload>& payloads) const {
  const Share& share = *share_of(push);
  const int64_t losses = share.range.size() * steps_of(push);
  if (push.losses_size() != 0 && push.losses_size() != losses) {
    return refused("push-losses", losses, push.losses_size());
  }
  for (const wire::BadGradient& bad : push.bad()) {
    if (bad.loss() >= 0 && bad.loss() < push.losses_size() && bad.tensor() >= 0) continue;
    return refused("push-bad",
                   "the place of one of " + std::to_string(push.losses_size()) + " losses",
                   std::to_string(bad.loss()) + ", tensor " + std::to_string(bad.tensor()));
  }
  if (!push.data_hash().empty() && push.data_hash().size() != HashSum::kBytes) {
    return refused("push-data-hash", static_cast<int64_t>(HashSum::kBytes),
                   std::ssize(push.data_hash()));
  }
  if (push.has_learning_rate() &&
      !(std::isfinite(push.learning_rate()) && push.learning_rate() >= 0.0)) {
    return refused("push-rate", "a finite learning rate from 0",
                   std::to_string(push.learning_rate()));
  }
  if (push.parts_size() != std::ssize(payloads)) {
    return refused("push-payloads", push.parts_size(), std::ssize(payloads));
  }
  const int64_t parts = std::ssize(share.nodes) * slices_[static_cast<size_t>(push.stage())];
  if (push.parts_total() != parts) {
    return refused("push-parts", parts, push.parts_total());
  }
  return {};
}

Checked PushIntake::check_part(const Share& share, int stage, const wire::Part& part,
                               const Payload& payload) const {
  if (!shard_.owns(part.slice())) {
    return refused("push-slice", "a slice of this server", std::to_string(part.slice()));
  }
  if (shard_.map().stage_of(part.slice()) != stage) {
    return refused("push-slice", "a slice of stage " + std::to_string(stage),
                   std::to_string(part.slice()));
  }
  const Range node{part.lo(), part.hi()};
  if (std::find(share.nodes.begin(), share.nodes.end(), node) == share.nodes.end()) {
    return refused("push-node", "a node of share " + range_text(share.range.lo, share.range.hi),
                   range_text(node.lo, node.hi) + " of slice " + std::to_string(part.slice()));
  }
  if (!shard_.codec(part.slice()).fits(payload.bytes.data(), payload.bytes.size())) {
    return refused("push-payload",
                   std::to_string(shard_.elements(part.slice())) + " gradients of slice " +
                       std::to_string(part.slice()) + " in the job's codec",
                   std::to_string(payload.bytes.size()) + " bytes");
  }
  return {};
}

Checked PushIntake::check(uint64_t incarnation, const wire::Push& push,
                          const std::vector<Payload>& payloads) const {
  if (Checked refusal = check_place(workers_.at(incarnation), push)) return refusal;
  if (Checked refusal = check_early(incarnation, push)) return refusal;
  if (Checked refusal = check_lists(push, payloads)) return refusal;
  const Share& share = *share_of(push);
  for (int i = 0; i < push.parts_size(); ++i) {
    Checked refusal =
        check_part(share, push.stage(), push.parts(i), payloads[static_cast<size_t>(i)]);
    if (refusal) return refusal;
  }
  if (Checked refusal = aggregation_.check(push)) return refusal;
  const auto& reads = push.read_versions();
  // workers of an all-reduce read no weights of servers, and report none
  if (reads.empty() || slices_[static_cast<size_t>(push.stage())] == 0) return {};
  const int64_t read = reads[shard_.server()];
  if (read >= 0) return {};
  return refused("push-reads", "the version of this server's slices that the stage owns",
                 std::to_string(read));
}

void PushIntake::take(uint64_t incarnation, const wire::Push& push,
                      std::vector<Payload>& payloads) {
  Worker& worker = workers_.at(incarnation);
  worker.pushes.begin_at(push.first());
  if (worker.pushes.complete(push.number())) return;
  Assembly& assembly = worker.open[push.number()];
  assembly.stage = push.stage();
  ReceivedPush& received = assembly.push;
  received.incarnation = incarnation;
  received.rank = worker.rank;
  received.step = push.step();
  received.steps = steps_of(push);
  received.range = {push.lo(), push.hi()};
  received.attempt = push.grant().attempt();
  if (push.losses_size() != 0) received.losses.assign(push.losses().begin(), push.losses().end());
  if (push.bad_size() != 0) received.bad.assign(push.bad().begin(), push.bad().end());
  if (push.squares() != 0.0) received.squares = push.squares();
  if (push.has_learning_rate()) received.learning_rate = push.learning_rate();
  if (!push.data_hash().empty()) received.data_hash = HashSum::from_bytes(push.data_hash());
  // the values of `part.lo`, to number all parts
  const auto share_leaves = static_cast<size_t>(received.range.size());
  assembly.seen.reserve(share_leaves * shard_.slices().size());
  for (int i = 0; i < push.parts_size(); ++i) {
    const wire::Part& part = push.parts(i);
    const auto leaf = static_cast<size_t>(part.lo() - push.lo());
    if (!assembly.seen.insert(place(part.slice()) * share_leaves + leaf)) continue;
    Payload& payload = payloads[static_cast<size_t>(i)];
    bytes_ += static_cast<int64_t>(payload.bytes.size());
    PartialSum sum{{part.lo(), part.hi()}, std::move(payload)};
    if (slices_.size() == 1) {
      aggregation_.take_part(received, part.slice(), std::move(sum));
    } else {
      assembly.parts.emplace_back(part.slice(), std::move(sum));
    }
  }
  if (static_cast<int>(assembly.seen.size()) < push.parts_total()) return;
  Assembly whole = std::move(assembly);
  worker.open.erase(push.number());
  worker.pushes.mark(push.number());
  whole.push.reads.assign(push.read_versions().begin(), push.read_versions().end());
  if (slices_.size() == 1) return aggregation_.take_push(std::move(whole.push));
  join(std::move(whole));
}

// A group that changes computes a step again, in another attempt, and so may another group, whose attempt may have
// begun earlier: each attempt is joined by itself, and the last push of each stage counts. Parts count no earlier than
// the push: otherwise all slices might reach the next version while server 0 lacks the losses of a stage that is lost,
// and no group would compute the step again.
void PushIntake::join(Assembly of_stage) {
  const int stage = of_stage.stage;
  ReceivedPush& push = of_stage.push;
  const auto place = std::tuple(push.step, push.range.lo, push.attempt);
  Group& group = groups_[place];
  ReceivedPush& whole = group.push;
  const bool is_last = stage + 1 == std::ssize(slices_);
  if (group.stages.empty()) {
    whole.attempt = push.attempt;
    whole.step = push.step;
    whole.steps = push.steps;
    whole.range = push.range;
    whole.reads = push.reads;
    whole.reads_of_stages.assign(slices_.size() * push.reads.size(), -1);
  }
  std::ranges::copy(push.reads, whole.reads_of_stages.begin() +
                                    static_cast<std::ptrdiff_t>(stage * push.reads.size()));
  group.stages.insert(stage);
  if (is_last) {  // it has the losses
    whole.incarnation = push.incarnation;
    whole.rank = push.rank;
    whole.losses = std::move(push.losses);
    whole.data_hash = push.data_hash;
  } else if (std::ranges::find(whole.others, push.incarnation) == whole.others.end()) {
    whole.others.push_back(push.incarnation);
  }
  whole.bad.insert(whole.bad.end(), push.bad.begin(), push.bad.end());
  whole.squares = std::max(whole.squares, push.squares);
  for (size_t i = 0; i < whole.reads.size(); ++i) {
    int64_t& oldest = whole.reads[i];
    const int64_t read = push.reads[i];
    if (read >= 0) oldest = oldest < 0 ? read : std::min(oldest, read);
  }
  bool complete = true;
  for (int s = 0; s < std::ssize(slices_); ++s) {
    complete = complete && (!expects(s) || group.stages.contains(s));
  }
  std::erase_if(group.parts,
                [&](const auto& part) { return shard_.map().stage_of(part.first) == stage; });
  for (auto& [slice, part] : of_stage.parts) {
    if (!complete && aggregation_.acknowledged_is_applied()) own(part.payload);
    group.parts.emplace_back(slice, std::move(part));
  }
  if (!complete) return;
  Group joined = std::move(group);
  // what earlier attempts have here is not needed any more
  const auto first = groups_.lower_bound({joined.push.step, joined.push.range.lo, INT64_MIN});
  groups_.erase(first, std::next(groups_.find(place)));
  for (auto& [slice, part] : joined.parts) {
    aggregation_.take_part(joined.push, slice, std::move(part));
  }
  aggregation_.take_push(std::move(joined.push));
}

bool PushIntake::expects(int stage) const {
  return shard_.server() == 0 || records_ || slices_[static_cast<size_t>(stage)] > 0;
}

void PushIntake::for_waiting(const std::function<void(PartialSum&)>& visit) {
  for (auto& [incarnation, worker] : workers_) {
    for (auto& [number, assembly] : worker.open) {
      for (auto& [slice, part] : assembly.push.parts) visit(part);
      for (auto& [slice, part] : assembly.parts) visit(part);
    }
  }
  for (auto& [place, group] : groups_) {
    for (auto& [slice, part] : group.parts) visit(part);
  }
}

size_t PushIntake::place(int slice) const { return shard_.place(slice); }

}  // namespace pushpull
