#include "worker/member/time_split.h"

#include <utility>

#include "common/base/process.h"
#include "common/device/phase_range.h"

namespace pushpull {
namespace {

constexpr int64_t kTextIntervalMs = 200;
constexpr int64_t kFreshMs = 2000;  // an older wait has ended or hangs

}  // namespace

void Activity::wait(const std::function<std::string()>& what) {
  const int64_t now = clock_();
  if (now < next_text_ms_) return;
  next_text_ms_ = now + kTextIntervalMs;
  std::string text = what();
  const std::lock_guard lock(mutex_);
  what_ = std::move(text);
  text_ms_ = now;
}

void Activity::put(wire::Stats* stats) const {
  stats->set_progress(computed_.load(std::memory_order_relaxed));
  const std::lock_guard lock(mutex_);
  if (text_ms_ >= 0 && clock_() - text_ms_ <= kFreshMs) stats->set_waits_for(what_);
}

namespace {

constexpr std::array kPhaseNames = {"other", "compute", "push", "wait", "pull"};  // by Phase

}  // namespace

void TimeTotals::put(wire::Stats* stats) const {
  stats->set_compute_seconds(compute);
  stats->set_push_seconds(push);
  stats->set_wait_seconds(wait);
  stats->set_pull_seconds(pull);
  stats->set_computed(tasks);
  stats->set_first_stage(first_stage);
  for (const StageTotals& stage : stages) {
    wire::StageStats* const out = stats->add_stages();
    out->set_layers(stage.layers);
    out->set_busy_seconds(stage.busy);
    out->set_span_seconds(stage.span);
    out->set_slots_max(stage.slots_max);
    out->set_bytes_in(stage.bytes_in);
    out->set_bytes_out(stage.bytes_out);
  }
}

TimeSplit::TimeSplit(std::function<double()> clock, std::function<void(const char*)> mark)
    : clock_(std::move(clock)), mark_(std::move(mark)), since_s_(clock_()) {}

void TimeSplit::enter(Phase phase) {
  if (phase == phase_) return;
  const double now = clock_();
  seconds_[phase_] += now - since_s_;
  phase_ = phase;
  since_s_ = now;
  if (mark_) mark_(kPhaseNames[phase]);
}

TimeTotals TimeSplit::totals() const {
  return {seconds_[kCompute], seconds_[kPush], seconds_[kWait], seconds_[kPull], tasks_};
}

TimeSplit watched_time_split() { return TimeSplit(now_seconds, device::enter_range); }

}  // namespace pushpull
