#include "ps/coordinator/term_start.h"

#include "common/base/text.h"

namespace pushpull {

TermStart::TermStart(const CoordinatorOptions& options, bool again, double join_timeout_s,
                     FileWatch& files, JobEffects& effects)
    : options_(options),
      again_(again),
      files_(files),
      effects_(effects),
      gathering_(options.job, again, join_timeout_s) {}

// All members have joined, or, in a job with on-worker-loss = continue that has trained, all that
// can be expected.
bool TermStart::members_are_there(Now now, const Coordinator& coordinator) {
  if (coordinator.wants_start()) return true;
  return gathering_.begins_without_others(now.awake_ms, coordinator.admission().has_quorum());
}

bool TermStart::advance(Now now, const Coordinator& coordinator, const RunHistory& before,
                        bool disk_busy) {
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
}

// Members are not waited for while the files of their term are read and written.
std::optional<Error> TermStart::wait_for_members(Now now, const Coordinator& coordinator) {
  if (files_.busy()) return std::nullopt;
  const std::string waiting = coordinator.waiting_for();
  if (const auto line = gathering_.line(now.awake_ms, waiting)) effects_.show_line(*line);
  return gathering_.overdue(now.awake_ms, waiting);
}

Start TermStart::start() const {
  Start start;
  if (point_.weights) start = {point_.weights->step, point_.weights->updates, true};
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
  ++before.recoveries;
  before.quarantined += ended.departures().quarantined();
  before.reached_step = ended.training().floor();
  return before;
}

RunHistory TermStart::history(RunHistory before) const {
  const int64_t step = point_.weights ? point_.weights->step : 0;
  if (!before.declared) before.declared = earlier_form(declaration_);
  before.declared->numerics = declaration_.numerics;
  if (!std::exchange(before.trained, true)) {
    before.first_step = step;
    if (point_.resumed) before.resumed_from_step = step;
  } else if (before.reached_step > step) {
    before.steps_repeated += before.reached_step - step;
  }
  return before;
}

}  // namespace pushpull
