#include "ps/run/term_start.h"

#include <algorithm>
#include <set>

#include "common/base/text.h"

namespace pushpull {

TermStart::TermStart(const CoordinatorOptions& options, bool again, double join_timeout_s,
                     FileWatch& files, JobEffects& effects)
    : options_(options),
      again_(again),
      files_(files),
      effects_(effects),
      gathering_(options.job, again, join_timeout_s),
      own_(options.job.slice_bytes),
      own_watch_(options.job.progress_timeout_s, "[weights]") {}

// All members have joined, or, in a job with on-worker-loss = continue that has trained, all that
// can be expected.
bool TermStart::members_are_there(Now now, const Coordinator& coordinator) {
  if (coordinator.wants_start()) return true;
  return gathering_.begins_without_others(now.awake_ms, coordinator.admission().has_quorum());
}

bool TermStart::advance(Now now, const Coordinator& coordinator, const RunHistory& before,
                        bool disk_busy) {
  asks_ = false;
  if (coordinator.phase() != wire::PHASE_GATHERING || files_.busy() || disk_busy) return false;
  if (!members_are_there(now, coordinator)) return false;
  // The workers may have left meanwhile, and others may have declared another model.
  if (stage_ != Stage::kGathering && declaration_ != coordinator.declaration()) {
    stage_ = Stage::kGathering;
  }
  switch (stage_) {
    case Stage::kGathering:
      declaration_ = coordinator.declaration();
      files_.begin(FileStep::kLoad);
      effects_.load_start(declaration_);
      return false;
    case Stage::kLoaded:
      if (!has_weights(now, coordinator, before)) return false;
      files_.begin(FileStep::kOpen);
      effects_.open_files(declaration_, point_, history(before));
      return false;
    case Stage::kOpened:
      return true;
  }
  return false;
}

void TermStart::loaded(StartPoint point) {
  point_ = std::move(point);
  stage_ = Stage::kLoaded;
  own_sha256_.clear();
  own_.begin(declaration_.table);
}

// ---- own weights ----

bool TermStart::has_weights(Now now, const Coordinator& coordinator, const RunHistory& before) {
  // Tensors that init-from lacks are the workers' own, too.
  if (!declaration_.own_weights || !own_sha256_.empty()) return true;
  if (point_.weights && point_.drawn.empty()) return true;
  if (own_.complete() && !own_.error()) {
    take_own_weights(before);
    return true;
  }
  asks_ = true;
  for (Outgoing& out : own_.ask(now.awake_ms, coordinator.members())) {
    out.message.header.set_term_id(options_.term_id);
    effects_.send(out.to, out.message);  // repeated if it is lost
  }
  return false;
}

void TermStart::take_own_weights(const RunHistory& before) {
  auto state = std::make_shared<FlatState>();
  state->weights = own_.take_weights();
  if (point_.weights) keep_loaded(*point_.weights, *state);
  point_.weights = std::move(state);
  own_sha256_ = own_.sha256();
  point_.initial_weights_sha256 = before.own_weights_sha256;
  if (before.own_weights_sha256.empty() || before.own_weights_sha256 == own_sha256_) return;
  effects_.show_line("[weights] the initial weights of " + own_.giver() + " have the hash " +
                     own_sha256_.substr(0, 12) + ", those that the run began with had " +
                     before.own_weights_sha256.substr(0, 12) +
                     ": the run begins again with other weights; let the program seed them by the "
                     "job's seed");
}

// Puts the weights of init-from in the place of the workers' own, but for tensors that the file lacks.
void TermStart::keep_loaded(const FlatState& loaded, FlatState& state) const {
  const std::set<std::string> lacking(point_.drawn.begin(), point_.drawn.end());
  for (const TensorInfo& info : declaration_.table.tensors) {
    if (lacking.contains(info.name)) continue;
    std::copy_n(loaded.weights.begin() + info.offset, info.size,
                state.weights.begin() + info.offset);
  }
}

Checked TermStart::on_weights(Now now, const Coordinator& coordinator, const Message& message) {
  const uint64_t incarnation = message.header.own_weights().incarnation();
  return own_.take(now.awake_ms, coordinator.members().find(incarnation), message);
}

std::optional<Error> TermStart::wait_for_weights(Now now) {
  own_watch_.running(now.awake_ms, own_.giver() + " to hand over its initial weights",
                     own_.arrived(), 0);
  if (const auto line = own_watch_.take_notice(now.awake_ms)) effects_.show_line(*line);
  if (own_.error()) return own_.error();
  if (!own_watch_.overdue(now.awake_ms)) return std::nullopt;
  return Error(ErrorCode::kUnreachable, own_watch_.overdue_text(now.awake_ms));
}

// ---- members ----

// Members are not waited for while the files of their term are read and written.
std::optional<Error> TermStart::wait_for_members(Now now, const Coordinator& coordinator) {
  if (asks_) return wait_for_weights(now);
  own_watch_.idle();
  if (files_.busy()) return std::nullopt;
  const std::string waiting = coordinator.waiting_for();
  if (const auto line = gathering_.line(now.awake_ms, waiting)) effects_.show_line(*line);
  return gathering_.overdue(now.awake_ms, waiting);
}

Start TermStart::start() const {
  Start start;
  if (point_.weights) {
    start = {point_.weights->step, point_.weights->updates, true, point_.resumed};
  }
  start.choices = point_.choices;
  start.counts = point_.counts;
  start.evaluation = point_.evaluation;
  return start;
}

std::string TermStart::line(const Coordinator& coordinator, int64_t slices) const {
  const Barriers& barriers = coordinator.barriers();
  return (again_ ? "training goes on: " : "training starts: ") +
         plural(coordinator.declaration().table.total, "parameter") + " in " +
         plural(slices, "slice") + ", steps " + std::to_string(barriers.start_step) + " to " +
         std::to_string(barriers.end_step) + ", strategy " + options_.job.strategy.to_string();
}

RunHistory TermStart::after_loss(RunHistory before, const Coordinator& ended) {
  before.recoveries += 1 + ended.training()->places().recovered();
  before.workers_lost += ended.departures().workers_lost();
  before.quarantined += ended.departures().quarantined();
  before.reached_step = ended.training()->floor();
  return before;
}

RunHistory TermStart::history(RunHistory before) const {
  const int64_t step = point_.weights ? point_.weights->step : 0;
  if (!before.declared) before.declared = earlier_form(declaration_);
  before.declared->numerics = declaration_.numerics;
  if (before.own_weights_sha256.empty()) before.own_weights_sha256 = own_sha256_;
  if (!std::exchange(before.trained, true)) {
    before.first_step = step;
    if (point_.resumed) before.resumed_from_step = step;
  } else if (before.reached_step > step) {
    before.steps_repeated += before.reached_step - step;
  }
  return before;
}

}  // namespace pushpull
