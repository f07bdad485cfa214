#include "client/pushpull.h"

#include <openssl/crypto.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/read_model.h"
#include "client/session.h"
#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/host/shortage.h"
#include "common/launch/find_job.h"
#include "common/launch/placement.h"
#include "common/layout/metric.h"
#include "common/net/join.h"
#include "common/net/key_file.h"
#include "worker/group/group_parts.h"

struct pp_session {
  std::unique_ptr<pushpull::Session> session;
  const pid_t process = getpid();
  pushpull::HandedTask task;
  pushpull::HandedTask announced;
  pushpull::MeetingPlace group;
  pushpull::NamedSums sums;                         // of the open chunk
  std::optional<pushpull::Session::Totals> totals;  // of the open task, if that is PP_VALUES
  std::vector<pp_total> told_totals;                // the same for the caller
  int place = -1;                                   // see pp_job
  std::string strategy;                             // likewise
  mutable std::mutex mutex;
  // guarded by mutex
  std::string error;  // of the last call that failed, or of pp_fail
  // The text that pp_error returned last, by thread. Not thread_local: the destructor at a thread's end
  // needs glibc 2.18, and a buffer has no room in the static TLS of a library that is loaded late.
  mutable std::map<std::thread::id, std::string> told;
};

namespace {

using pushpull::Error;
using pushpull::ErrorCode;

constexpr size_t kMaxWhyBytes = 1000;  // of pp_fail

std::string text(const char* given) { return given == nullptr ? "" : given; }

// A forked process has a copy of the session without its threads. Locks nothing: the other process
// may have held a lock.
bool is_forked(const pp_session* session) {
  return session != nullptr && session->process != getpid();
}

void note_error(pp_session* session, const std::string& why) {
  constexpr size_t kMaxBytes = 2 * pushpull::kMaxPathBytes;
  const std::lock_guard lock(session->mutex);
  session->error = pushpull::printable(why, kMaxBytes);  // names of peers are for no terminal
}

// Returns 0, or the code of what `action` throws, which the session keeps.
int guarded(pp_session* session, const std::function<void()>& action) {
  if (is_forked(session)) return static_cast<int>(ErrorCode::kUsage);
  const auto fail = [session](ErrorCode code, const std::string& why) {
    if (session != nullptr) note_error(session, why);
    return static_cast<int>(code);
  };
  try {
    if (session == nullptr) throw Error(ErrorCode::kUsage, "[client] the session is NULL");
    action();
    return 0;
  } catch (const Error& e) {
    return fail(e.code(), e.what());
  } catch (const std::exception& e) {
    const Error error = pushpull::error_of(e);
    return fail(error.code(), error.what());
  }
}

// Returns the session's worker. Throws Error(kUsage) if pp_open has failed.
pushpull::Session& opened(const pp_session* session) {
  if (session->session) return *session->session;
  throw Error(ErrorCode::kUsage, "[client] the session could not be opened");
}

// place: is set to that of pp_job.
pushpull::WorkerOptions worker_options(const pp_options& given, int* place) {
  pushpull::WorkerOptions options;
  options.join = given.join == nullptr ? text(std::getenv("PUSHPULL_JOIN")) : given.join;
  if (options.join.empty()) {
    throw Error(ErrorCode::kUsage,
                "[client] no address of the first server: start this program by `pushpull run "
                "--worker COMMAND`, or set PUSHPULL_JOIN to tcp://HOST:PORT, or to auto");
  }
  std::optional<pushpull::Placement> found;
  if (options.join == "auto") {
    const pushpull::Placement placement = pushpull::place_this_process({});
    pushpull::Log("worker").info(pushpull::summary_line(placement));
    found = placement;
  }
  *place = found && found->rank ? static_cast<int>(found->rank->value) : pushpull::wanted_rank();
  if (given.join_timeout > 0.0) options.join_timeout_s = given.join_timeout;
  options.device = "external";
  options.job_keys = text(given.job);
  if (options.job_keys.size() > pushpull::kMaxJobKeysBytes) {
    throw Error(ErrorCode::kUsage,
                "[client] the job has " + std::to_string(options.job_keys.size()) +
                    " bytes: expected at most " + std::to_string(pushpull::kMaxJobKeysBytes));
  }
  options.job_token = found ? found->job_token : pushpull::job_token_of_this_process();
  // `pushpull run --insecure` sets this variable for the program of --worker.
  const bool insecure = given.insecure != 0 ||
                        (text(given.key).empty() && text(std::getenv("PUSHPULL_INSECURE")) == "1");
  if (!insecure) options.keys = pushpull::find_keys(text(given.key));
  if (found) {
    const pushpull::SearchListener listener{
        [](const std::string& line) { pushpull::Log("worker").info(line); }, [] { return false; }};
    options.join =
        *pushpull::address_of_job(*found, options.keys, options.join_timeout_s, listener);
  }
  return options;
}

void set_task(const pushpull::HandedTask& from, pp_task* to) {
  *to = {from.trains ? PP_TRAIN : PP_EVALUATE,
         from.step,
         from.micro_batch,
         from.epoch,
         from.indices.data(),
         from.indices.size(),
         from.same_weights ? 1 : 0,
         0.0,
         0,
         0,
         0};
}

pp_job job_of(const pushpull::Job& job, pushpull::Session& worker, pp_session* session) {
  session->strategy = job.strategy.to_string();
  return {job.seed,
          job.global_batch,
          job.micro_batch,
          job.schedule.lr,
          job.optimizer.weight_decay,
          job.task_timeout_s,
          job.strategy.traits().same_bits ? 1 : 0,
          worker.workers(),
          static_cast<int>(job.stages),
          session->place,
          static_cast<double>(pushpull::group_silence_ms(job)) / 1000.0,
          worker.rank(),
          job.steps,
          job.epochs,
          session->strategy.c_str(),
          job.checkpoint_keep,
          job.schedule.kind == pushpull::ScheduleKind::kExternal ? 1 : 0};
}

// Returns the totals of the open task. Throws Error(kUsage) if it is no PP_VALUES.
const pushpull::Session::Totals& waiting_totals(const pp_session* session) {
  if (session->totals) return *session->totals;
  throw Error(ErrorCode::kUsage, "[client] no evaluation waits for values");
}

// Waits as Handover::next does, and looks at the evaluations that wait for values meanwhile. Returns nothing if one does.
std::optional<pushpull::Handover::Next> next_task(pushpull::Session& worker, int timeout_ms,
                                                  pp_session* session) {
  constexpr int kLookMs = 10;
  pushpull::Handover& tasks = worker.tasks();
  if (!worker.has_formulas()) return tasks.next(timeout_ms, &session->task);
  for (int waited_ms = 0;; waited_ms += kLookMs) {
    if (!tasks.holds_task()) session->totals = worker.waiting_totals();
    if (session->totals) return std::nullopt;
    const int left_ms = timeout_ms < 0 ? kLookMs : std::min(kLookMs, timeout_ms - waited_ms);
    const auto next = tasks.next(std::max(left_ms, 0), &session->task);
    if (next != pushpull::Handover::Next::kNothingYet || left_ms < kLookMs) return next;
  }
}

}  // namespace

int pp_open(const pp_options* options, pp_session** session) {
  *session = new pp_session;
  pp_session* const made = *session;
  return guarded(made, [&] {
    // unless the program has begun to use OpenSSL, exit() does not free what our threads still use
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
    const pp_options given = options == nullptr ? pp_options{} : *options;
    made->session = std::make_unique<pushpull::Session>(
        worker_options(given, &made->place),
        pushpull::PeerPort{text(given.listen), "*", text(given.advertise)});
  });
}

int pp_join(pp_session* session, int timeout_ms, pp_job* job) {
  return guarded(session, [&] {
    const std::optional<pushpull::Job> found = opened(session).wait_joined(timeout_ms);
    *job = {};
    if (found) *job = job_of(*found, opened(session), session);
  });
}

int pp_attach(pp_session* session, const pp_model* model) {
  return guarded(session, [&] {
    opened(session).attach(
        [model](const pushpull::Job& job) { return pushpull::read_model(*model, job); });
  });
}

int pp_next(pp_session* session, int timeout_ms, pp_task* task) {
  using Next = pushpull::Handover::Next;
  return guarded(session, [&] {
    *task = {};
    if (session->totals) {
      throw Error(ErrorCode::kUsage,
                  "[client] the values of an evaluation are not reported: call "
                  "pp_report_values before the next task");
    }
    const std::optional<Next> found = next_task(opened(session), timeout_ms, session);
    if (!found) {
      task->kind = PP_VALUES;
      task->step = session->totals->step;
      session->told_totals.clear();
      for (const auto& [name, value] : session->totals->named) {
        session->told_totals.push_back({name.c_str(), value});
      }
      return;
    }
    const Next next = *found;
    session->sums.clear();
    task->kind = PP_NOTHING_YET;
    if (next == Next::kRegroup) task->kind = PP_REGROUP;
    if (next == Next::kNothingYet || next == Next::kRegroup) return;
    set_task(session->task, task);
    if (next == Next::kTask && !session->task.trains) return;
    const bool ends = next == Next::kEnd;
    const pushpull::TermPoint point = opened(session).point(ends ? INT64_MAX : session->task.step);
    task->checkpoint = point.checkpoint;
    task->term_start = point.start;
    task->term = point.term;
    if (!ends) {
      task->learning_rate = opened(session).learning_rate(session->task.step);
      return;
    }
    task->kind = PP_END;
    opened(session).wait_end();
  });
}

int pp_next_group(pp_session* session, int timeout_ms, pp_group* group) {
  using Next = pushpull::Handover::Next;
  return guarded(session, [&] {
    *group = {};
    pushpull::MeetingPlace& place = session->group;
    const Next next = opened(session).tasks().next_group(timeout_ms, &place);
    *group = {place.attempt, place.host.c_str(), place.port, next == Next::kEnd ? 1 : 0};
    if (next == Next::kEnd) opened(session).wait_end();
  });
}

int pp_announced(pp_session* session, pp_task* task) {
  return guarded(session, [&] {
    *task = {};
    task->kind = PP_NOTHING_YET;
    std::optional<pushpull::HandedTask> next = opened(session).tasks().announced();
    if (!next) return;
    session->announced = std::move(*next);
    set_task(session->announced, task);
  });
}

int pp_weights(pp_session* session, size_t tensor, float* to, size_t floats) {
  return guarded(session, [&] { opened(session).tasks().copy_weights(tensor, {to, floats}); });
}

int pp_all_weights(pp_session* session, int timeout_ms, float** to, size_t tensors,
                   size_t* missing) {
  return guarded(session, [&] {
    *missing = opened(session).tasks().copy_arriving(timeout_ms, {to, tensors});
  });
}

int pp_changed_weights(pp_session* session, const float* const* at, size_t tensors,
                       size_t* changed) {
  return guarded(session, [&] {
    *changed = tensors;
    *changed = opened(session).tasks().find_changed({at, tensors});
  });
}

int pp_gradient(pp_session* session, size_t tensor, const float* from, size_t floats) {
  return guarded(session, [&] { opened(session).tasks().set_gradient(tensor, {from, floats}); });
}

int pp_lend_gradient(pp_session* session, size_t tensor, const float* from, size_t floats) {
  return guarded(session, [&] { opened(session).tasks().lend_gradient(tensor, {from, floats}); });
}

int pp_set_lr(pp_session* session, double rate) {
  return guarded(session, [&] { opened(session).tasks().set_learning_rate(rate); });
}

int pp_get_progress(pp_session* session, pp_progress* progress) {
  return guarded(session, [&] {
    const pushpull::StepProgress now = opened(session).tasks().progress();
    *progress = {now.steps, now.loss.value_or(NAN), now.learning_rate.value_or(NAN)};
  });
}

int pp_add_sum(pp_session* session, const char* name, double value) {
  return guarded(session, [&] {
    pushpull::Handover& tasks = opened(session).tasks();
    tasks.check_evaluates();
    pushpull::check_sum_name(session->sums, text(name));
    session->sums[text(name)] += value;
  });
}

int pp_totals(pp_session* session, const pp_total** totals, size_t* count) {
  return guarded(session, [&] {
    waiting_totals(session);
    *totals = session->told_totals.data();
    *count = session->told_totals.size();
  });
}

int pp_report_values(pp_session* session, const double* values, size_t heads) {
  return guarded(session, [&] {
    opened(session).report_values(waiting_totals(session), {values, heads});
    session->totals.reset();
  });
}

int pp_log(pp_session* session, const char* name, double value) {
  return guarded(session, [&] { opened(session).log(text(name), value); });
}

int pp_await_lent(pp_session* session) {
  return guarded(session, [&] { opened(session).tasks().await_lent(); });
}

static_assert(PP_NO_LOSS == pushpull::kUnknownLoss);

int pp_end(pp_session* session, float loss) {
  return guarded(session, [&] { opened(session).tasks().end_training(loss); });
}

int pp_report(pp_session* session, const pp_sums* sums, size_t heads) {
  return guarded(session, [&] {
    std::vector<pushpull::HeadSums> all;
    for (size_t i = 0; i < heads; ++i) {
      all.push_back({sums[i].loss, sums[i].counted, sums[i].metric});
    }
    pushpull::check_sums(opened(session).heads(), std::ssize(session->task.indices), all);
    opened(session).tasks().end_evaluation(all, session->sums);
  });
}

int pp_evaluated(pp_session* session, int64_t* step, pp_result* results, size_t heads) {
  return guarded(session, [&] {
    const pushpull::wire::State state = opened(session).evaluated();
    *step = state.evaluated_size() == 0 ? -1 : state.evaluated_step();
    for (size_t i = 0; i < heads; ++i) {
      results[i] = {NAN, NAN};
      if (i >= static_cast<size_t>(state.evaluated_size())) continue;
      const pushpull::wire::HeadResult& head = state.evaluated(static_cast<int>(i));
      if (head.has_loss()) results[i].loss = head.loss();
      if (head.has_metric()) results[i].metric = head.metric();
    }
  });
}

int pp_fail(pp_session* session, const char* why) {
  return guarded(session, [&] {
    const std::string reason =
        why == nullptr ? "[client] the program has failed" : pushpull::printable(why, kMaxWhyBytes);
    opened(session).fail(reason);
    note_error(session, reason);
  });
}

const char* pp_error(const pp_session* session) {
  if (session == nullptr) return "[client] the session is NULL";
  if (is_forked(session)) {
    return "[client] the session belongs to the process that has opened it: a forked process has "
           "none";
  }
  const std::lock_guard lock(session->mutex);
  std::string& line = session->told[std::this_thread::get_id()];
  line = session->error;
  return line.c_str();
}

void pp_free(pp_session* session) {
  if (!is_forked(session)) delete session;  // its threads are not here
}

void pp_set_log(void (*log)(void* user, const char* line), void* user) {
  if (log == nullptr) return pushpull::set_print_sink({});
  pushpull::set_print_sink(
      [log, user](int /*fd*/, std::string_view line) { log(user, std::string(line).c_str()); });
}
