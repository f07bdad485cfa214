#include "client/session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <exception>
#include <memory>
#include <utility>

#include "client/external_stage.h"
#include "client/handover.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/host/shortage.h"
#include "common/job/barriers.h"
#include "common/net/join.h"

namespace pushpull {

namespace {

// After a task's time is over, the program may say more about it by failing.
constexpr double kGraceS = 2.0;

// Starts a thread that blocks all signals, as the threads that it starts will do: the program's
// threads get them. It does not block those that a fault raises, for a debugger or a crash handler.
std::jthread without_signals(const std::function<std::jthread()>& start) {
  sigset_t most;
  sigset_t before;
  sigfillset(&most);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) {
    sigdelset(&most, fault);
  }
  pthread_sigmask(SIG_SETMASK, &most, &before);
  std::jthread thread = start();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

void Session::Owner::fail(const std::string& why, ErrorCode code) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return;
  failure_ = why;
  code_ = code;
}

void Session::Owner::log(const std::string& name, double value) {
  if (!is_logged_name(name)) {
    throw Error(ErrorCode::kUsage, "[client] a value of the name '" + printable(name, 80) +
                                       "': expected 1 to 64 letters, digits and _ - . /");
  }
  const std::lock_guard lock(mutex_);
  if (!logged_.contains(name) && std::ssize(logged_) == kMaxLoggedNames) {
    throw Error(ErrorCode::kUsage, "[client] a value of the name " + name + ": there are " +
                                       std::to_string(kMaxLoggedNames) + " names already");
  }
  Logged& of = logged_[name];
  if (!std::isfinite(of.sum + value)) return;
  of.sum += value;
  ++of.count;
}

void Session::Owner::add_logged(wire::Stats* stats) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, of] : logged_) {
    wire::LoggedValue* value = stats->add_logged();
    value->set_name(name);
    value->set_sum(of.sum);
    value->set_count(of.count);
  }
}

std::string Session::Owner::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

ErrorCode Session::Owner::failure_code() const {
  const std::lock_guard lock(mutex_);
  return code_;
}

Session::Session(WorkerOptions options, PeerPort port)
    : thread_(without_signals([&] {
        return std::jthread(
            [this, options = std::move(options), port = std::move(port)] { live(options, port); });
      })) {}

Session::~Session() { end("[client] the program has ended its session", ErrorCode::kStopped); }

void Session::fail(const std::string& why) { end(why, ErrorCode::kFailed); }

void Session::end(const std::string& why, ErrorCode code) {
  owner_.fail(why, code);
  handover_.give_up(owner_.failure());
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

// Throws if the session has failed.
void Session::check() const {
  const std::string failure = owner_.failure();
  if (!failure.empty()) throw Error(ErrorCode::kFailed, failure);
}

void Session::live(const WorkerOptions& options, const PeerPort& port) {
  try {
    WorkerLife life(options, owner_);
    const struct Forgetting {  // before the life, and its control, is destroyed
      Session& session;
      ~Forgetting() { session.forget_control(); }
    } forgetting{*this};
    note_end(life.run([&](const WorkerParts& parts) {
      return std::make_unique<TrainingWork>(
          parts,
          [&](const Job& job) {
            check_programs_keys(options.job_keys, job);
            return wait_attached(parts.control);
          },
          port);
    }));
  } catch (const Error& e) {
    note_end({false, e.code(), e.what(), 0});
  } catch (const std::exception& e) {
    const Error error = error_of(e);
    note_end({false, error.code(), error.what(), 0});
  }
}

void Session::note_end(const JobEnd& end) {
  {
    const std::lock_guard lock(mutex_);
    end_ = end;
    changed_.notify_all();
  }
  handover_.end();
}

// The newest State of the worker's life is kept.
void Session::forget_control() {
  const std::lock_guard lock(mutex_);
  take_state();
  control_ = nullptr;
}

void Session::take_state() {
  if (control_ == nullptr) return;
  const int64_t version = control_->state_version();
  const uint64_t term = control_->term_id();
  if (version == version_ && term == term_) return;  // a copy for each task would be too much
  const std::optional<wire::State> state = control_->state();
  if (!state) return;
  if (state->evaluated_size() > 0) evaluated_ = *state;
  if (state->end_step() == 0) return;
  version_ = version;
  term_ = term;
  training_ = *state;
}

Computation Session::wait_attached(Control& control) {
  const Job& job = control.job();
  if (job.model != "external") {
    throw Error(ErrorCode::kUsage,
                "[client] the job has model = " + job.model +
                    ": a program with a model of its own needs model = external");
  }
  std::unique_lock lock(mutex_);
  job_ = job;
  control_ = &control;
  workers_ = control.workers();
  rank_ = control.rank();
  changed_.notify_all();
  changed_.wait(lock, [this] { return spec_ || !owner_.failure().empty(); });
  check();
  handover_.set_time_limit(job.task_timeout_s, kGraceS);
  if (job.schedule.kind == ScheduleKind::kExternal) handover_.set_job_rate(job.schedule.lr);
  auto data = std::make_unique<ExternalData>(*spec_, handover_);
  if (spec_->own_stage)
    return {std::move(data), std::make_unique<ExternalStage>(*spec_, handover_)};
  return {std::move(data), std::make_unique<ExternalModel>(*spec_, handover_)};
}

std::optional<Job> Session::wait_joined(int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  wait_for(changed_, lock, timeout_ms,
           [this] { return job_ || end_ || !owner_.failure().empty(); });
  check();
  if (!job_ && end_) throw Error(end_->code, end_->text);
  return job_;
}

int Session::workers() {
  const std::lock_guard lock(mutex_);
  return workers_;
}

int Session::rank() {
  const std::lock_guard lock(mutex_);
  return rank_;
}

double Session::learning_rate(int64_t step) {
  const std::lock_guard lock(mutex_);
  if (!spec_) throw Error(ErrorCode::kUsage, "[client] the session has no model: attach one first");
  if (job_->schedule.kind == ScheduleKind::kExternal) return handover_.learning_rate();
  return pushpull::learning_rate(job_->schedule, step, total_steps(*job_, spec_->train_samples));
}

TermPoint Session::point(int64_t step) {
  const std::lock_guard lock(mutex_);
  take_state();
  if (!job_ || training_.end_step() == 0) return {};
  const int64_t stop = training_.stop_step();
  const int64_t end = stop > 0 ? stop : training_.end_step();
  Barriers barriers = barriers_of(*job_, training_.start_step(), end);
  barriers.eval_every = barriers.copy_every = 0;
  for (const int64_t chosen : training_.chosen_checkpoints()) barriers.choose(chosen);
  return {term_, barriers.start_step, barriers.last(step)};
}

// A State is looked at once, and again after a second: another term counts its versions anew.
std::optional<Session::Totals> Session::waiting_totals() {
  constexpr std::chrono::seconds kAgain{1};
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (control_ == nullptr || (control_->state_version() == looked_at_ && now - looked_ < kAgain)) {
    return std::nullopt;
  }
  const std::optional<wire::State> state = control_->state();
  if (!state) return std::nullopt;
  looked_at_ = state->version();
  looked_ = now;
  if (state->totals_step() == 0) return std::nullopt;
  Totals out{state->totals_step(), {}};
  for (const wire::NamedSum& sum : state->totals()) out.named[sum.name()] = sum.value();
  return out;
}

void Session::report_values(const Totals& of, std::span<const double> values) {
  const std::lock_guard lock(mutex_);
  const auto formulas = std::ranges::count_if(
      spec_->heads, [](const HeadInfo& head) { return is_formula(head.metric); });
  if (std::ssize(values) != formulas) {
    throw Error(ErrorCode::kUsage, "[client] the model has " + std::to_string(formulas) +
                                       " heads with a formula, got " +
                                       std::to_string(values.size()) + " values");
  }
  if (control_ == nullptr) return;
  wire::EvalResult result;
  result.set_incarnation(control_->incarnation());
  result.set_step(of.step);
  result.mutable_values()->Assign(values.begin(), values.end());
  control_->report(std::move(result));
}

wire::State Session::evaluated() {
  const std::lock_guard lock(mutex_);
  take_state();
  return evaluated_;
}

void Session::attach(const std::function<ExternalSpec(const Job& job)>& read) {
  const std::lock_guard lock(mutex_);
  check();
  if (!job_) throw Error(ErrorCode::kUsage, "[client] the worker has not joined yet");
  if (spec_) throw Error(ErrorCode::kUsage, "[client] the session has a model already");
  spec_ = read(*job_);
  has_formulas_ = std::ranges::any_of(spec_->heads,
                                      [](const HeadInfo& head) { return is_formula(head.metric); });
  changed_.notify_all();
}

Handover& Session::tasks() {
  const std::lock_guard lock(mutex_);
  if (spec_) return handover_;
  throw Error(ErrorCode::kUsage, "[client] the session has no model: attach one first");
}

std::span<const HeadInfo> Session::heads() {
  tasks();
  const std::optional<OwnStage>& own = spec_->own_stage;
  if (own && own->stage + 1 < own->stages) return {};
  return spec_->heads;
}

void Session::wait_end() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return end_.has_value(); });
  if (!end_->success) throw Error(end_->code, end_->text);
}

}  // namespace pushpull
