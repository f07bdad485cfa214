#include "ps/run/run_summary.h"

#include <algorithm>
#include <utility>

#include "common/layout/slice_map.h"
#include "common/net/join.h"
#include "common/update/optimizer_options.h"
#include "ps/server/data_plane.h"

namespace pushpull {

namespace {

constexpr int64_t kMomentMs = 250;

double seconds_of(int64_t ms) { return static_cast<double>(ms) / 1000.0; }

std::map<int64_t, int64_t> staleness(const Membership& members, const wire::Stats& own) {
  std::map<int64_t, int64_t> out;
  const auto add = [&](const wire::Stats& stats) {
    for (const auto& [staleness, updates] : stats.staleness()) out[staleness] += updates;
  };
  add(own);
  for (const auto& [incarnation, member] : members.all()) {
    if (member.role == wire::ROLE_SERVER && !member.peer.empty()) add(member.stats);
  }
  return out;
}

RunTotals totals(const Coordinator& of, const wire::Stats& own) {
  RunTotals out = of.departures().totals();
  out.add(wire::ROLE_SERVER, own);
  for (const auto& [incarnation, member] : of.members().all()) {
    if (!member.peer.empty()) out.add(member.role, member.stats);
  }
  return out;
}

}  // namespace

void RunSummary::begin_term(int64_t now_ms, int64_t samples, const StartPoint& start) {
  moment_ms_ = now_ms;
  moment_samples_ = samples;
  rate_ = 0.0;
  opened_.clear();
  if (initial_weights_sha256_.empty()) initial_weights_sha256_ = start.initial_weights_sha256;
  if (drawn_.empty()) drawn_ = start.drawn;
  if (unused_.empty()) unused_ = start.unused;
}

void RunSummary::note_lost(const std::vector<std::string>& members) {
  lost_.insert(lost_.end(), members.begin(), members.end());
}

void RunSummary::end_term(const std::vector<std::string>& lost) {
  note_lost(lost);
  opened_now_.clear();
  evaluated_.clear();
}

// A process of the coordinator that begins with a later term has lost its predecessor.
void RunSummary::went_back(int64_t step) {
  if (lost_.empty()) lost_.emplace_back("server 0");
  back_to_step_ = step;
}

double RunSummary::seconds_at(int64_t ms) const {
  return history_.seconds + seconds_of(ms - began_ms_);
}

void RunSummary::note_barriers(int64_t now_ms, const Barriers& barriers) {
  for (const auto& [step, samples] : std::exchange(opened_now_, {})) {
    if (barriers.evaluation_due(step)) opened_[step] = {now_ms, samples};
    // The run may end at any evaluation whose result training awaits.
    if (barriers.keeps_evaluated(step) || step == barriers.end_step || barriers.stops_at(step))
      ended_ms_ = now_ms;
  }
}

void RunSummary::note_hash(const Barriers& barriers, int64_t step, const std::string& sha256) {
  if (step != barriers.start_step || barriers.starts_at_end()) {
    weights_sha256_ = sha256;
  } else if (initial_weights_sha256_.empty()) {
    initial_weights_sha256_ = sha256;  // a later term begins in the middle of the run
  }
}

void RunSummary::measure_rate(int64_t now_ms, const Coordinator& of) {
  const int64_t samples = of.training()->committed().counts().samples;
  const double rate =
      static_cast<double>(samples - moment_samples_) / seconds_of(now_ms - moment_ms_);
  // Smoothed, so that the estimated time of the end does not jump. The last evaluation is no training.
  const bool over = of.training()->floor() >= of.barriers().end_step;
  if (!over) rate_ = rate_ == 0.0 ? rate : 0.7 * rate_ + 0.3 * rate;
  moment_ms_ = now_ms;
  moment_samples_ = samples;
}

std::vector<RunFigures> RunSummary::moments(int64_t now_ms, Coordinator& of, const ServedData& own,
                                            bool last) {
  const std::vector<Evaluation> evaluations = std::exchange(evaluated_, {});
  const bool due = now_ms - moment_ms_ >= kMomentMs;
  if (!due && evaluations.empty() && !last) return {};
  if (due) measure_rate(now_ms, of);
  RunFigures now = figures(now_ms, of, own.stats());
  now.evaluation.reset();
  now.logged = now.totals.logged_since(moment_totals_);
  moment_totals_ = now.totals;
  // The loss of a server that ends the term is told with its return.
  if (!of.departures().lost_server()) note_lost(of.take_lost());
  // One moment for each evaluation, and at least one.
  std::vector<RunFigures> out(std::max<size_t>(1, evaluations.size()), now);
  for (size_t i = 0; i < evaluations.size(); ++i) add_evaluation(out[i], evaluations[i], now_ms);
  for (size_t i = 1; i < out.size(); ++i) out[i].logged.clear();
  out.front().lost = std::exchange(lost_, {});
  out.front().back_to_step = std::exchange(back_to_step_, {});
  return out;
}

void RunSummary::add_evaluation(RunFigures& moment, const Evaluation& evaluation, int64_t now_ms) {
  const auto found = opened_.find(evaluation.step);
  const Opened opened =
      found != opened_.end() ? found->second : Opened{now_ms, moment.counts.samples};
  moment.evaluation = evaluation;
  moment.test_seconds = seconds_at(opened.at_ms);
  moment.test_samples = opened.samples;
  opened_.erase(opened_.begin(), opened_.upper_bound(evaluation.step));
}

RunFigures RunSummary::figures(int64_t now_ms, const Coordinator& of,
                               const wire::Stats& own) const {
  RunFigures f;
  f.phase = of.phase();
  f.waiting_for = of.waiting_for();
  f.failure = of.failure_text();
  f.run_id = options_.run_id;
  f.version = program_version();
  f.strategy = options_.job.strategy.to_string();
  f.servers = options_.servers;
  f.workers = options_.workers;
  f.host = options_.self.host;
  f.pid = options_.self.pid;
  f.out = options_.out;
  f.recoveries = history_.recoveries;
  f.steps_repeated = history_.steps_repeated;
  f.workers_lost = history_.workers_lost + of.departures().workers_lost();
  f.checkpoints_failed = history_.checkpoints_failed;
  f.resumed_from_step = history_.resumed_from_step;
  const TrainingRun* const run = of.training();
  if (run == nullptr) return f;
  const CommittedWork& record = run->committed();
  f.step = record.floor();
  f.end_step = run->barriers().end_step;
  f.total_steps = run->total_steps();
  f.steps_per_epoch =
      std::max<int64_t>(1, steps_per_epoch(options_.job, of.declaration().train_samples));
  f.step_done = record.floor() - history_.first_step;
  f.seconds = began_ms_ < 0 ? 0.0 : seconds_at(now_ms);
  f.recoveries += run->places().recovered();
  f.counts = record.counts();
  f.counts.bad_gradients += history_.quarantined + of.departures().quarantined();
  f.samples_per_second =
      rate_ > 0 ? rate_ : static_cast<double>(f.counts.samples) / std::max(f.seconds, 1e-3);
  f.learning_rate = learning_rate(options_.job.schedule, *f.step, run->total_steps(),
                                  record.progress().has_learning_rate()
                                      ? std::optional(record.progress().learning_rate())
                                      : std::nullopt);
  f.loss = record.newest_loss();
  f.staleness = staleness(of.members(), own);
  f.totals = totals(of, own);
  f.logged = f.totals.logged_since({});
  f.evaluation = run->evaluations().newest();
  return f;
}

RunFigures RunSummary::summary(const Coordinator& of, const wire::Stats& own) const {
  const TrainingRun& run = *of.training();
  const CommittedWork& record = run.committed();
  const Declaration& declaration = of.declaration();
  const Job& job = options_.job;
  RunFigures f = figures(ended_ms_, of, own);
  // In all-reduce, workers may be past the stop step.
  if (const int64_t stopped_at = run.barriers().stop_step; stopped_at > 0) {
    f.end_step = stopped_at;
    const int64_t bad_gradients = f.counts.bad_gradients;
    if (const RunCounts* at_stop = record.counts_at(stopped_at)) f.counts = *at_stop;
    f.counts.bad_gradients = bad_gradients;
  }
  f.samples_per_second = static_cast<double>(f.counts.samples) / std::max(f.seconds, 1e-3);
  f.train_loss = record.mean_loss(steps_per_epoch(job, declaration.train_samples));
  f.stopped_early = run.followed().stopped_early();
  f.best = run.followed().record();
  f.model_parameters = declaration.table.trainable();
  f.arena_bytes = declaration.arena_bytes;
  f.slots = declaration.slots;
  f.initial_weights_sha256 = initial_weights_sha256_;
  f.drawn_tensors = drawn_;
  f.unused_tensors = unused_;
  f.data_digest = declaration.data_digest;
  f.numerics = declaration.numerics;
  f.other_numerics = declaration.other_numerics;
  f.weights_sha256 = weights_sha256_;
  const SliceMap map(declaration.table, job.slice_bytes, options_.servers);
  for (int server = 0; server < options_.servers; ++server) {
    f.slices_per_server.push_back(std::ssize(map.slices_of(server)));
  }
  return f;
}

}  // namespace pushpull
