#include "ps/run/training_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "common/base/text.h"
#include "common/layout/slice_map.h"
#include "common/update/norm.h"
#include "common/update/trust_ratio.h"
#include "ps/members/message_checks.h"

namespace pushpull {

namespace {

// A server that continues from a copy is at most this many copies behind: two may be in progress.
constexpr int64_t kKeptCopies = 4;
constexpr int64_t kAttemptsOfATerm = 1'000'000;

Barriers barriers_of_run(const Job& job, const Start& start, int64_t total_steps) {
  return barriers_of(job, start.step, end_of_run(job, start.evaluation, start.step, total_steps));
}

}  // namespace

TrainingRun::TrainingRun(const CoordinatorOptions& options, const Declaration& declaration,
                         const Start& start, TrainingListener& listener, const Membership& members,
                         Actions& out)
    : options_(options),
      start_(start),
      members_(members),
      out_(out),
      total_steps_(pushpull::total_steps(options.job, declaration.train_samples)),
      barriers_(barriers_of_run(options.job, start, total_steps_)),
      shares_(static_cast<int>(
          std::min(options.workers / options.job.stages, options.job.micro_batches()))),
      table_(declaration.table),
      committed_(options.job, options.workers, barriers_, start.counts),
      evaluations_(declaration.test_samples, options.job.micro_batch, declaration.heads),
      followed_(options.job, declaration, start.step, total_steps_, start.evaluation),
      snapshots_(barriers_, start.resumed ? std::optional(start.step) : std::nullopt),
      listener_(listener),
      places_(options.job, options.servers, members),
      norms_(table_, SliceMap(table_, options.job.slice_bytes, options.servers),
             options.job.optimizer, kKeptCopies * options.job.copy_distance()),
      grants_(options.grant_key),
      groups_(options.job.stages, members, (options.term - 1) * kAttemptsOfATerm) {
  const Job& job = options.job;
  if (!job.record.empty()) {
    logs_ = std::make_unique<ServerLogs>(options.servers, job.micro_batches(), job.stages);
  }
  const int with_slices = norms_.servers();
  work_ = make_work_assignment({job, barriers_, options.workers, shares_, with_slices, members_,
                                groups_, committed_, evaluations_, followed_, grants_, out_,
                                start.counts.samples});
  if (with_slices < options.servers) {
    const int without = options.servers - with_slices;
    out.notice("the model has only " + counted(with_slices, "slice") + ": " +
               counted(without, "server") + (without == 1 ? " holds" : " hold") + " none");
  }
}

void TrainingRun::on_commit(const Commit& commit) {
  const MemberInfo* member = members_.find(commit.incarnation);
  committed_.add(commit, member == nullptr ? -1 : member->rank);
  if (commit.counted && !commit.bad.empty()) report_bad(commit);
  work_->on_commit(commit);
}

// Reports the first ones, then each time their number has doubled.
void TrainingRun::report_bad(const Commit& commit) {
  constexpr uint64_t kAll = 8;
  const auto now = static_cast<uint64_t>(committed_.counts().bad_gradients);
  const uint64_t before = now - commit.bad.size();
  if (now > kAll && std::bit_width(now) == std::bit_width(before)) return;
  const MemberInfo* member = members_.find(commit.incarnation);
  const wire::BadGradient& bad = commit.bad.front();
  const int64_t micro_batch = commit.range.lo + bad.loss() % commit.range.size();
  const auto tensor = static_cast<size_t>(bad.tensor());
  const bool known = tensor > 0 && tensor <= table_.tensors.size();
  out_.notice("[train] the " + std::string(tensor > 0 ? "gradient" : "loss") + " of " +
              (member == nullptr ? "a worker" : member->name()) + " at step " +
              std::to_string(commit.step + bad.loss() / commit.range.size()) + ", micro-batch " +
              std::to_string(micro_batch) + ", is not finite" +
              (known ? " in tensor " + printable(table_.tensors[tensor - 1].name) : "") +
              ": it counts as zeros (on-bad-gradient = skip), " + std::to_string(now) + " so far");
}

void TrainingRun::on_barrier_open(int64_t step) {
  if (!snapshots_.open(step)) return;
  listener_.on_barrier_open(step, work_->samples_at(step));
  work_->on_barrier_open(step);
}

void TrainingRun::on_checkpoint_waits(int64_t step) {
  if (std::exchange(has_waited_, true)) return;
  out_.notice("training waits at step " + std::to_string(step) +
              " until an earlier checkpoint is written: checkpoint-every = " +
              std::to_string(options_.job.checkpoint_every) +
              " is faster than the disk; raise it if that matters");
}

std::vector<wire::Lease> TrainingRun::leases(uint64_t incarnation) {
  const MemberInfo* member = members_.find(incarnation);
  return member == nullptr ? std::vector<wire::Lease>{} : work_->leases(*member);
}

// A checkpoint is a cut between the same two steps on all members, so no member may pass it without
// knowing of it. It is announced before any worker can have begun the step after it; until all
// members confirm it, servers hold back the weights for that step and no lease of it is drawn.
std::optional<int64_t> TrainingRun::choose_checkpoint(int64_t steps_ahead) {
  if (choosing()) return std::nullopt;
  const int64_t first = std::max(work_->first_unbegun_step(), floor() + steps_ahead);
  const int64_t step = barriers_.end_of_round_at(first);
  if (step <= barriers_.start_step || step >= barriers_.end_step) return std::nullopt;
  barriers_.choose(step);
  barriers_.held_step = step;
  out_.state_changed();
  chosen_version_ = out_.state_version();
  return step;
}

// Returns true if all members that it concerns know of the newest chosen checkpoint. Workers must
// know with leases, and if they keep the weights; otherwise it is enough that servers hold them
// back. The server in the coordinator's process receives each State at once. A spare has no rank
// and gets its first work with a State that names the checkpoint.
bool TrainingRun::all_know() const {
  const StrategyTraits& traits = options_.job.strategy.traits();
  const bool concerns_workers = traits.leases || traits.workers_update;
  const auto& all = members_.all();
  return std::all_of(all.begin(), all.end(), [&](const auto& entry) {
    const MemberInfo& member = entry.second;
    if (member.role == wire::ROLE_WORKER && !concerns_workers) return true;
    return member.peer.empty() || member.rank < 0 || member.state_version >= chosen_version_;
  });
}

void TrainingRun::snapshot_gathered(GatheredState snapshot) {
  snapshots_.gathered(std::move(snapshot));
  out_.state_changed();
}

bool TrainingRun::snapshot_written(bool saved) {
  const bool over = snapshots_.written(saved);
  if (over) out_.state_changed();
  return over;
}

std::optional<BarrierSnapshots::Task> TrainingRun::take_task() {
  const std::optional<int64_t> step = snapshots_.waiting_step();
  if (!step || awaits_evaluation(*step)) return std::nullopt;
  return snapshots_.take_task(followed_.is_best(*step));
}

void TrainingRun::on_tick() {
  work_->on_tick();
  if (!choosing() || !all_know()) return;
  barriers_.held_step = 0;
  out_.state_changed();
}

Checked TrainingRun::on_message(const PeerId& peer, const wire::Header& header) {
  switch (header.body_case()) {
    case wire::Header::kEvalResult:
      return on_eval_result(peer, header.eval_result());
    case wire::Header::kNorms:
      return on_norms(header.norms());
    case wire::Header::kArrived:
      return on_arrived(header.arrived());
    default:
      return on_record_part(peer, header.record_part());
  }
}

Checked TrainingRun::on_eval_result(const PeerId& peer, const wire::EvalResult& result) {
  const uint64_t worker = result.incarnation();
  const MemberInfo* member = members_.find(worker);
  if (Checked refusal = check_trainer(member, worker)) return refusal;
  if (Checked refusal = check_results(barriers_, options_.job.micro_batch, evaluations_.heads(),
                                      result, *member)) {
    return refusal;
  }
  Message taken;
  taken.header.mutable_eval_taken()->set_number(result.number());
  out_.send(peer, std::move(taken));
  if (result.values_size() > 0) {
    const auto& values = result.values();
    const std::optional<Evaluation> evaluation = evaluations_.take_values(
        result.step(), {values.data(), static_cast<size_t>(values.size())});
    if (evaluation) on_evaluation(*evaluation);
    return std::nullopt;
  }
  const uint64_t unit = groups_.reports_for(worker, result.attempt());
  std::vector<wire::ChunkResult> accepted;
  for (const wire::ChunkResult& chunk : result.chunks()) {
    // Only the present owner of a chunk may report its result.
    if (work_->may_evaluate(unit, result.step(), chunk.chunk())) accepted.push_back(chunk);
  }
  for (const wire::ChunkResult& chunk : accepted) {
    const std::optional<Evaluation> evaluation = evaluations_.add(result.step(), chunk);
    if (evaluation) on_evaluation(*evaluation);
    work_->on_chunk(unit, result.step(), chunk.chunk(), evaluation.has_value());
  }
  if (evaluations_.waiting() != nullptr) out_.state_changed();
  return std::nullopt;
}

void TrainingRun::on_evaluation(const Evaluation& evaluation) {
  listener_.on_evaluation(evaluation);
  out_.state_changed();
  if (!followed_.any()) return;
  if (followed_.add(evaluation, barriers_)) end_at(evaluation.step);
}

// No worker has begun this step, and no server needs to know: its weights are gathered. Parts that
// divide work see the new end and begin nothing: no lease is drawn, no share is cut. The steps that
// shares and grants name reach beyond it and stay.
void TrainingRun::end_at(int64_t step) {
  barriers_.end_step = step;
  barriers_.stop_step = 0;
  out_.notice(followed_.text());
}

// A run that a signal stops at this step has no evaluation there, unless workers do not ask servers
// between steps. The start is only hashed.
bool TrainingRun::awaits_evaluation(int64_t step) const {
  if (step == barriers_.start_step) return false;
  const bool takes_place =
      !barriers_.stops_at(step) || options_.job.strategy.traits().workers_update;
  return barriers_.keeps_evaluated(step) && takes_place && !evaluations_.complete(step);
}

Checked TrainingRun::on_norms(const wire::Norms& norms) {
  const MemberInfo* server = members_.find(norms.incarnation());
  if (Checked refusal = check_member(server, wire::ROLE_SERVER, norms.incarnation()))
    return refusal;
  if (Checked refusal = check_step(barriers_, norms.step(), *server)) return refusal;
  if (!norms_.take(norms)) return std::nullopt;
  Message message;
  *message.header.mutable_norm_total() = *norms_.total();
  if (norms_.all_here_now()) {
    out_.send_to_servers(members_, message);
  } else {
    out_.send(server->peer, std::move(message));
  }
  return std::nullopt;
}

Checked TrainingRun::on_arrived(const wire::Arrived& arrived) {
  const MemberInfo* server = members_.find(arrived.incarnation());
  if (Checked refusal = check_member(server, wire::ROLE_SERVER, arrived.incarnation()))
    return refusal;
  return work_->on_arrived(*server, arrived);
}

Checked TrainingRun::on_record_part(const PeerId& peer, const wire::RecordPart& part) {
  const MemberInfo* server = members_.find(part.incarnation());
  if (Checked refusal = check_member(server, wire::ROLE_SERVER, part.incarnation())) return refusal;
  if (!logs_) {
    return refused("no-record", "no part of a record: the job is not recorded",
                   "one from " + server->name());
  }
  if (Checked refusal = logs_->take(server->rank, part)) return refusal;
  Message taken;
  taken.header.mutable_record_taken()->set_through(logs_->have(server->rank));
  out_.send(peer, std::move(taken));
  return std::nullopt;
}

// Workers that keep the weights pause only at checkpoints that they know: this adds one unless
// another is as near.
int64_t TrainingRun::nearest_cut() {
  const int64_t cut = work_->nearest_cut();
  if (!options_.job.strategy.traits().workers_update || cut <= work_->first_unbegun_step())
    return cut;
  const auto known = std::ranges::upper_bound(barriers_.chosen, floor());
  if (known != barriers_.chosen.end()) return std::min(cut, *known);
  return std::min(cut, choose_checkpoint(0).value_or(cut));
}

int64_t TrainingRun::cut_without_workers() const {
  const StrategyTraits& traits = options_.job.strategy.traits();
  const bool whole = traits.whole_steps && traits.step_versions && !traits.workers_update;
  return whole && floor() > barriers_.start_step ? floor() : 0;
}

// The caller tells server 0 before it handles other messages: it hands out no weights from there
// on.
bool TrainingRun::stop() {
  if (members_.count(wire::ROLE_WORKER) == 0) {
    barriers_.stop_step = cut_without_workers();
    if (barriers_.stop_step > 0) out_.state_changed();
    return barriers_.stop_step > 0;
  }
  int64_t step = nearest_cut();
  // The evaluation at the cut would not take place, and a resumed run would count one less.
  const int64_t next = barriers_.round_end(step);
  const bool may_move = !options_.job.strategy.traits().workers_update;
  if (may_move && barriers_.keeps_evaluated(step) && !barriers_.evaluation_due(next)) step = next;
  if (step >= barriers_.end_step) return false;
  barriers_.stop_step = step;
  out_.state_changed();
  return true;
}

bool TrainingRun::complete() const {
  return floor() >= barriers_.end_step && snapshots_.complete() &&
         evaluations_.complete(barriers_.end_step);
}

// A server reports the length of its log in its last Stats; the server in this process passes its
// log on in each turn.
bool TrainingRun::logs_complete() const {
  if (!logs_) return true;
  const auto& all = members_.all();
  return std::all_of(all.begin(), all.end(), [&](const auto& entry) {
    const MemberInfo& member = entry.second;
    return member.role != wire::ROLE_SERVER || member.peer.empty() ||
           logs_->have(member.rank) >= member.stats.recorded();
  });
}

void TrainingRun::add_to_state(wire::State* state) const {
  state->set_world_size(options_.workers);
  state->set_start_step(barriers_.start_step);
  state->set_end_step(barriers_.end_step);
  state->set_total_steps(total_steps_);
  state->set_shares(shares_);
  places_.add_to_state(state);
  for (const int64_t step : barriers_.chosen) state->add_chosen_checkpoints(step);
}

void TrainingRun::add_to_worker_state(wire::State* state, const MemberInfo& worker) const {
  add_to_state(state);
  state->set_stop_step(barriers_.stop_step);
  if (followed_.any()) state->set_evaluated_barrier(followed_.evaluated());
  if (const std::optional<Evaluation>& newest = evaluations_.newest()) {
    state->set_evaluated_step(newest->step);
    for (const HeadResult& head : newest->heads) {
      wire::HeadResult* const out = state->add_evaluated();
      if (const auto loss = head.loss()) out->set_loss(*loss);
      if (const auto value = head.value()) out->set_metric(*value);
    }
  }
  if (const Evaluations::Totals* totals = evaluations_.waiting()) {
    state->set_totals_step(totals->evaluation.step);
    for (const auto& [name, value] : totals->named) {
      wire::NamedSum* const sum = state->add_totals();
      sum->set_name(name);
      sum->set_value(value);
    }
  }
  work_->add_to_worker_state(state, worker);
}

std::optional<int> TrainingRun::take_joined_server() {
  const std::optional<int> rank = places_.take_joined(members_);
  if (rank) out_.state_changed();  // the server may now receive the State of training
  return rank;
}

void TrainingRun::server_loaded(uint64_t incarnation) {
  places_.loaded(incarnation);
  out_.state_changed();
}

bool TrainingRun::replaceable(int64_t now_ms, const MemberInfo& server) {
  norms_.forget(server.incarnation);
  return places_.lost_server(now_ms, server.rank, floor());
}

TrainingRun::Lost TrainingRun::lose_worker(int64_t now_ms, const MemberInfo& worker) {
  const std::vector<uint64_t> others = groups_.workers_of(groups_.unit_of(worker.incarnation));
  const bool reports = others.size() > 1 && others.back() != worker.incarnation;
  const uint64_t unit = worker.rank < 0 ? 0 : groups_.lose(worker.incarnation);
  if (unit == 0 || !work_->lose(now_ms, unit, reports)) return Lost::kNoWork;
  return places_.lost_worker(floor()) ? Lost::kWork : Lost::kPushes;
}

bool TrainingRun::has_work(uint64_t incarnation) const {
  const uint64_t unit = groups_.unit_of(incarnation);
  return unit != 0 && work_->has_work(unit);
}

std::vector<uint64_t> TrainingRun::unfinished(int64_t step) const {
  std::vector<uint64_t> out;
  for (const uint64_t unit : work_->unfinished(step)) {
    const std::vector<uint64_t> workers = groups_.workers_of(unit);
    out.insert(out.end(), workers.begin(), workers.end());
  }
  return out;
}

std::string TrainingRun::overdue(int64_t now_ms) {
  const std::string of_work = work_->overdue(now_ms);
  return of_work.empty() ? places_.overdue(now_ms) : of_work;
}

std::vector<DataPort> TrainingRun::server_ports() const {
  std::vector<DataPort> ports;
  for (int rank = 0; rank < places_.servers(); ++rank) {
    const MemberInfo* const member = members_.find_rank(wire::ROLE_SERVER, rank);
    ports.push_back(member == nullptr ? places_.port(rank) : member->data_port());
  }
  return ports;
}

void TrainingRun::add_to_server_state(wire::State* state, const MemberInfo& server) const {
  add_to_state(state);
  for (const auto& [incarnation, member] : members_.all()) {
    if (member.role != wire::ROLE_WORKER || !member.declared) continue;
    wire::Member* worker = state->add_workers();
    worker->set_rank(member.rank);
    worker->set_incarnation(incarnation);
  }
  state->set_grant_key(grants_.key());
  state->set_coordinator(options_.self.incarnation);
  state->set_updates(start_.updates);
  state->set_load(start_.load);
  places_.add_start_to(state, server);
  state->set_released_barrier(snapshots_.gathered_barrier());
  state->set_stop_step(barriers_.stop_step);
  state->set_held_step(barriers_.held_step);
  work_->add_to_server_state(state);
}

NormTotals::NormTotals(const TensorTable& table, const SliceMap& map,
                       const OptimizerOptions& optimizer, int64_t kept)
    : servers_(std::min(map.servers(), map.slices())),
      table_(table),
      optimizer_(optimizer),
      blocks_(map.blocks()),
      kept_(kept) {}

bool NormTotals::take(const wire::Norms& norms) {
  all_here_now_ = false;
  const Stage stage{norms.step(), norms.of_tensors()};
  if (const auto known = known_.find(stage); known != known_.end()) {
    total_ = known->second;
    return true;
  }
  if (stage < stage_) return false;
  if (stage > stage_) parts_.clear();
  stage_ = stage;
  parts_[norms.incarnation()] = norms;
  if (static_cast<int>(parts_.size()) < servers_) return false;
  total_ = total_of_parts();
  parts_.clear();
  known_[stage_] = *total_;
  known_.erase(known_.begin(), known_.lower_bound({stage_.first - kept_, false}));
  all_here_now_ = true;
  return true;
}

wire::NormTotal NormTotals::total_of_parts() const {
  wire::NormTotal total;
  total.set_step(stage_.first);
  if (stage_.second) {
    std::vector<TrustPart> parts;
    for (const auto& [incarnation, part] : parts_) {
      for (const wire::NormNode& node : part.nodes()) {
        parts.push_back({node.tensor(), {node.lo(), node.hi()}, {node.weights(), node.squares()}});
      }
    }
    total.set_of_tensors(true);
    for (const double ratio : trust_ratios(table_, optimizer_, parts)) total.add_trust(ratio);
    return total;
  }
  std::vector<NormPart> nodes;
  for (const auto& [incarnation, part] : parts_) {
    for (const wire::NormNode& node : part.nodes()) {
      nodes.push_back({{node.lo(), node.hi()}, node.squares()});
    }
  }
  total.set_norm(std::sqrt(total_squares(std::move(nodes), blocks_)));
  return total;
}

}  // namespace pushpull
