#include "client/pushpull.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "client/session.h"
#include "common/base/console.h"
#include "common/base/error.h"
#include "common/keys/key_file.h"

struct pp_session {
  std::unique_ptr<pushpull::Session> session;
  const pid_t process = getpid();
  pushpull::HandedTask task;
  mutable std::mutex mutex;
  std::string error;  // of the first failure; guarded by mutex
};

namespace {

using pushpull::Error;
using pushpull::ErrorCode;

std::string text(const char* given) { return given == nullptr ? "" : given; }

// A forked process has a copy of the session without its threads. Locks nothing: the other process
// may have held a lock.
bool is_forked(const pp_session* session) {
  return session != nullptr && session->process != getpid();
}

// Returns 0, or the code of what `action` throws, which the session keeps.
int guarded(pp_session* session, const std::function<void()>& action) {
  if (is_forked(session)) return static_cast<int>(ErrorCode::kUsage);
  const auto fail = [session](ErrorCode code, const std::string& why) {
    if (session != nullptr) {
      const std::lock_guard lock(session->mutex);
      if (session->error.empty()) session->error = why;
    }
    return static_cast<int>(code);
  };
  try {
    if (session == nullptr) throw Error(ErrorCode::kUsage, "[client] the session is NULL");
    action();
    return 0;
  } catch (const Error& e) {
    return fail(e.code(), e.what());
  } catch (const std::exception& e) {
    return fail(ErrorCode::kInternal, std::string("[internal] ") + e.what());
  }
}

// Returns the session's worker. Throws Error(kUsage) if pp_open has failed.
pushpull::Session& opened(const pp_session* session) {
  if (session->session) return *session->session;
  throw Error(ErrorCode::kUsage, "[client] the session could not be opened");
}

pushpull::WorkerOptions worker_options(const pp_options& given) {
  pushpull::WorkerOptions options;
  options.join = given.join == nullptr ? text(std::getenv("PUSHPULL_JOIN")) : given.join;
  if (options.join.empty()) {
    throw Error(ErrorCode::kUsage,
                "[client] no address of the first server: set PUSHPULL_JOIN to tcp://HOST:PORT");
  }
  if (given.join_timeout > 0.0) options.join_timeout_s = given.join_timeout;
  options.device = "external";
  // `pushpull run --insecure` sets this variable for the program of --worker.
  const bool insecure = given.insecure != 0 ||
                        (text(given.key).empty() && text(std::getenv("PUSHPULL_INSECURE")) == "1");
  if (!insecure) options.keys = pushpull::find_keys(text(given.key));
  return options;
}

pushpull::TensorInfo tensor_info(const pp_tensor& given) {
  pushpull::TensorInfo info;
  info.name = text(given.name);
  info.shape.assign(given.shape, given.shape + given.dimensions);
  const bool is_whole = std::ranges::all_of(info.shape, [](int64_t side) { return side > 0; });
  if (info.name.empty() || !is_whole) {
    throw Error(ErrorCode::kUsage, "[client] tensor '" + info.name + "' of shape " +
                                       pushpull::shape_text(info.shape) +
                                       ": expected a name and sizes from 1");
  }
  info.init = given.init == PP_UNIFORM  ? pushpull::InitKind::kUniform
              : given.init == PP_NORMAL ? pushpull::InitKind::kNormal
                                        : pushpull::InitKind::kConstant;
  info.value = given.value;
  info.decay = given.no_decay == 0;
  return info;
}

pushpull::ExternalSpec external_spec(const pp_model& model) {
  pushpull::ExternalSpec spec;
  for (size_t i = 0; i < model.tensor_count; ++i) spec.table.add(tensor_info(model.tensors[i]));
  spec.metric = model.metric == PP_MEAN_SQUARED_ERROR ? pushpull::Metric::kMeanSquaredError
                                                      : pushpull::Metric::kAccuracy;
  spec.train_samples = model.train_samples;
  spec.test_samples = model.test_samples;
  spec.data_digest = text(model.data_digest);
  spec.numerics = text(model.numerics);
  if (spec.table.total > 0 && spec.train_samples > 0 && spec.test_samples >= 0) return spec;
  throw Error(ErrorCode::kUsage, "[client] a model needs a tensor and training samples, got " +
                                     std::to_string(model.tensor_count) + " tensors and " +
                                     std::to_string(model.train_samples) + " + " +
                                     std::to_string(model.test_samples) + " samples");
}

}  // namespace

int pp_open(const pp_options* options, pp_session** session) {
  *session = new pp_session;
  pp_session* const made = *session;
  return guarded(made, [&] {
    const pp_options given = options == nullptr ? pp_options{} : *options;
    made->session = std::make_unique<pushpull::Session>(
        worker_options(given), pushpull::PeerPort{text(given.listen), text(given.advertise)});
  });
}

int pp_join(pp_session* session, int timeout_ms, pp_job* job) {
  return guarded(session, [&] {
    const std::optional<pushpull::Job> found = opened(session).wait_joined(timeout_ms);
    *job = {};
    if (found) *job = {found->seed, found->global_batch, found->micro_batch};
  });
}

int pp_attach(pp_session* session, const pp_model* model) {
  return guarded(session, [&] { opened(session).attach(external_spec(*model)); });
}

int pp_next(pp_session* session, int timeout_ms, pp_task* task) {
  using Next = pushpull::Handover::Next;
  return guarded(session, [&] {
    *task = {};
    const Next next = opened(session).tasks().next(timeout_ms, &session->task);
    if (next == Next::kEnd) return opened(session).wait_end();
    task->kind = PP_NOTHING_YET;
    if (next == Next::kNothingYet) return;
    *task = {session->task.trains ? PP_TRAIN : PP_EVALUATE, session->task.step,
             session->task.micro_batch, session->task.indices.data(), session->task.indices.size()};
  });
}

int pp_weights(pp_session* session, size_t tensor, float* to, size_t floats) {
  return guarded(session, [&] { opened(session).tasks().copy_weights(tensor, {to, floats}); });
}

int pp_gradient(pp_session* session, size_t tensor, const float* from, size_t floats) {
  return guarded(session, [&] { opened(session).tasks().set_gradient(tensor, {from, floats}); });
}

int pp_end(pp_session* session, float loss) {
  return guarded(session, [&] { opened(session).tasks().end_training(loss); });
}

int pp_report(pp_session* session, double loss_sum, int64_t counted, double metric_sum) {
  return guarded(session, [&] {
    opened(session).tasks().end_evaluation({loss_sum, counted, metric_sum});
  });
}

const char* pp_error(const pp_session* session) {
  if (session == nullptr) return "[client] the session is NULL";
  if (is_forked(session)) {
    return "[client] the session belongs to the process that has opened it: a forked process has "
           "none";
  }
  const std::lock_guard lock(session->mutex);
  return session->error.c_str();  // set once
}

void pp_free(pp_session* session) {
  if (!is_forked(session)) delete session;  // its threads are not here
}

void pp_set_log(void (*log)(void* user, const char* line), void* user) {
  if (log == nullptr) return pushpull::set_print_sink({});
  pushpull::set_print_sink(
      [log, user](int /*fd*/, std::string_view line) { log(user, std::string(line).c_str()); });
}
