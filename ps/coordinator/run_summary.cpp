#include "ps/coordinator/run_summary.h"

#include <algorithm>

#include "common/layout/slice_map.h"
#include "common/net/join.h"
#include "common/update/optimizer_options.h"
#include "ps/files/report.h"
#include "ps/server/data_plane.h"

namespace pushpull {

namespace {

constexpr int64_t kMomentMs = 250;

double seconds_of(int64_t ms) { return static_cast<double>(ms) / 1000.0; }

}  // namespace

void RunSummary::begin_term(int64_t now_ms, Coordinator& coordinator, const StartPoint& start) {
  coordinator_ = &coordinator;
  moment_ms_ = now_ms;
  moment_samples_ = coordinator.training().counts().samples;
  rate_ = 0.0;
  opened_.clear();
  if (initial_weights_sha256_.empty()) initial_weights_sha256_ = start.initial_weights_sha256;
  if (drawn_.empty()) drawn_ = start.drawn;
  if (unused_.empty()) unused_ = start.unused;
}

double RunSummary::seconds_at(int64_t ms) const {
  return history_.seconds + seconds_of(ms - began_ms_);
}

void RunSummary::note_barriers(int64_t now_ms) {
  if (coordinator_ == nullptr) return;
  for (const auto& [step, samples] : coordinator().take_opened_barriers()) {
    if (coordinator().barriers().evaluation_due(step)) opened_[step] = {now_ms, samples};
    const Barriers& barriers = coordinator().barriers();
    // The run may end at any evaluation whose result training awaits.
    if (barriers.keeps_evaluated(step) || step == barriers.end_step || barriers.stops_at(step))
      ended_ms_ = now_ms;
  }
}

void RunSummary::note_hash(int64_t step, const std::string& sha256) {
  const Barriers& barriers = coordinator().barriers();
  if (step != barriers.start_step || barriers.starts_at_end()) {
    weights_sha256_ = sha256;
  } else if (initial_weights_sha256_.empty()) {
    initial_weights_sha256_ = sha256;  // a later term begins in the middle of the run
  }
}

std::map<int64_t, int64_t> RunSummary::staleness(const wire::Stats& own) const {
  std::map<int64_t, int64_t> out;
  const auto add = [&](const wire::Stats& stats) {
    for (const auto& [staleness, updates] : stats.staleness()) out[staleness] += updates;
  };
  add(own);
  for (const auto& [incarnation, member] : coordinator().members().all()) {
    if (member.role == wire::ROLE_SERVER && !member.peer.empty()) add(member.stats);
  }
  return out;
}

RunTotals RunSummary::totals(const wire::Stats& own) const {
  RunTotals out = coordinator().departures().totals();
  out.add(wire::ROLE_SERVER, own);
  for (const auto& [incarnation, member] : coordinator().members().all()) {
    if (!member.peer.empty()) out.add(member.role, member.stats);
  }
  return out;
}

void RunSummary::measure_rate(int64_t now_ms) {
  const int64_t samples = coordinator().training().counts().samples;
  const double rate =
      static_cast<double>(samples - moment_samples_) / seconds_of(now_ms - moment_ms_);
  // Smoothed, so that the estimated time of the end does not jump.
  rate_ = rate_ == 0.0 ? rate : 0.7 * rate_ + 0.3 * rate;
  moment_ms_ = now_ms;
  moment_samples_ = samples;
}

std::vector<Moment> RunSummary::moments(int64_t now_ms, const ServedData& own, bool last) {
  const std::vector<Evaluation> evaluations = coordinator().take_evaluations();
  const bool due = now_ms - moment_ms_ >= kMomentMs;
  if (!due && evaluations.empty() && !last) return {};
  if (due) measure_rate(now_ms);
  // One moment for each evaluation, and at least one.
  std::vector<Moment> out(std::max<size_t>(1, evaluations.size()), this->now(now_ms, own.stats()));
  for (size_t i = 0; i < evaluations.size(); ++i) add_evaluation(out[i], evaluations[i], now_ms);
  return out;
}

Moment RunSummary::now(int64_t now_ms, const wire::Stats& own) const {
  const CommittedWork& record = coordinator().training();
  Moment m;
  m.seconds = began_ms_ < 0 ? 0.0 : seconds_at(now_ms);
  m.step = record.floor();
  m.step_done = record.floor() - history_.first_step;
  m.end_step = coordinator().barriers().end_step;
  m.steps_per_epoch = std::max<int64_t>(
      1, steps_per_epoch(options_.job, coordinator().declaration().train_samples));
  m.samples = record.counts().samples;
  m.samples_per_second =
      rate_ > 0 ? rate_ : static_cast<double>(m.samples) / std::max(m.seconds, 1e-3);
  m.learning_rate = learning_rate(options_.job.schedule, m.step, coordinator().total_steps());
  m.loss = record.newest_loss();
  double sum = 0.0;
  double count = 0.0;
  m.staleness = staleness(own);
  m.totals = totals(own);
  for (const auto& [value, times] : m.staleness) {
    sum += static_cast<double>(value * times);
    count += static_cast<double>(times);
    m.staleness_max = std::max(m.staleness_max, value);
  }
  m.staleness_mean = count > 0 ? sum / count : 0.0;
  return m;
}

void RunSummary::add_evaluation(Moment& m, const Evaluation& evaluation, int64_t now_ms) {
  const auto found = opened_.find(evaluation.step);
  const Opened opened = found != opened_.end()
                            ? found->second
                            : Opened{now_ms, coordinator().training().counts().samples};
  m.evaluation = evaluation;
  m.test_seconds = seconds_at(opened.at_ms);
  m.test_samples = opened.samples;
  opened_.erase(opened_.begin(), opened_.upper_bound(evaluation.step));
}

JobFacts RunSummary::facts(int64_t now_ms, const Coordinator& of, const wire::Stats& own) const {
  JobFacts f;
  f.phase = of.phase();
  f.waiting_for = of.waiting_for();
  f.failure = of.failure_text();
  f.run = options_.first_run;
  f.version = program_version();
  f.strategy = options_.job.strategy.to_string();
  f.servers = options_.servers;
  f.workers = options_.workers;
  f.host = options_.self.host;
  f.pid = options_.self.pid;
  f.out = options_.out;
  f.recoveries = history_.recoveries;
  f.checkpoints_failed = history_.checkpoints_failed;
  if (!of.started()) return f;
  const Moment m = now(now_ms, own);
  f.step = m.step;
  f.end_step = m.end_step;
  f.epoch = m.step / m.steps_per_epoch;
  f.samples = m.samples;
  f.samples_per_second = m.samples_per_second;
  f.learning_rate = m.learning_rate;
  f.loss = m.loss;
  f.staleness_mean = m.staleness_mean;
  f.staleness_max = m.staleness_max;
  f.seconds = m.seconds;
  f.eta_seconds = seconds_left(m);
  f.staleness = m.staleness;
  f.totals = m.totals;
  f.evaluation = of.evaluations().newest();
  return f;
}

Summary RunSummary::summary(const wire::Stats& own) const {
  const CommittedWork& record = coordinator().training();
  const Declaration& declaration = coordinator().declaration();
  const Job& job = options_.job;
  Summary s;
  s.strategy = job.strategy.to_string();
  s.workers = options_.workers;
  s.servers = options_.servers;
  const int64_t stopped_at = coordinator().barriers().stop_step;
  s.steps = stopped_at > 0 ? stopped_at : coordinator().barriers().end_step;
  // In all-reduce, workers may be past the stop step.
  const RunCounts* at_stop = stopped_at > 0 ? record.counts_at(stopped_at) : nullptr;
  const RunCounts& counts = at_stop != nullptr ? *at_stop : record.counts();
  s.model_parameters = declaration.table.trainable();
  s.arena_bytes = declaration.arena_bytes;
  s.slots = declaration.slots;
  s.data_digest = declaration.data_digest;
  s.numerics = declaration.numerics;
  s.samples = counts.samples;
  s.samples_per_worker = counts.samples_per_worker;
  s.pushes_applied = counts.pushes_applied;
  s.pushes_dropped = counts.pushes_dropped;
  s.pushes_dropped_per_worker = counts.pushes_dropped_per_worker;
  s.seconds = seconds_at(ended_ms_);
  s.resumed_from_step = history_.resumed_from_step;
  s.recoveries = history_.recoveries;
  s.steps_repeated = history_.steps_repeated;
  s.checkpoints_failed = history_.checkpoints_failed;
  s.bad_gradients = record.counts().bad_gradients + history_.quarantined +
                    coordinator().departures().quarantined();
  s.samples_per_second = static_cast<double>(s.samples) / std::max(s.seconds, 1e-3);
  s.train_loss = record.mean_loss(steps_per_epoch(job, declaration.train_samples));
  s.stopped_early = coordinator().followed().stopped_early();
  s.evaluation = coordinator().followed().record();
  if (const auto& evaluation = coordinator().evaluations().newest()) {
    s.heads = evaluation->heads;
  }
  const SliceMap map(declaration.table.total, job.slice_bytes, options_.servers);
  for (int server = 0; server < options_.servers; ++server) {
    s.slices_per_server.push_back(std::ssize(map.slices_of(server)));
  }
  s.staleness = staleness(own);
  s.initial_weights_sha256 = initial_weights_sha256_;
  s.drawn_tensors = drawn_;
  s.unused_tensors = unused_;
  s.weights_sha256 = weights_sha256_;
  s.data_order_sha256 = counts.data_hash.hex();
  s.totals = totals(own);
  return s;
}

}  // namespace pushpull
