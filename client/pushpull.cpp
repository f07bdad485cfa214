#include "client/pushpull.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "client/session.h"
#include "common/base/console.h"
#include "common/base/error.h"
#include "common/keys/key_file.h"

struct pp_session {
  std::unique_ptr<pushpull::Session> session;
  pushpull::HandedTask task;
  pp_job job{};
  mutable std::mutex mutex;
  std::string error;  // of the first failure; guarded by mutex
};

namespace {

using pushpull::Error;
using pushpull::ErrorCode;

std::string text(const char* given) { return given == nullptr ? "" : given; }

// Returns 0, or the code of what `action` throws, which the session keeps.
int guarded(pp_session* session, const std::function<void()>& action) {
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

// Returns the session's worker. Throws Error(kUsage) if it has not joined.
pushpull::Session& joined(const pp_session* session) {
  if (session->session) return *session->session;
  throw Error(ErrorCode::kUsage, "[client] the session has not joined a job");
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
  if (given.insecure == 0) options.keys = pushpull::find_keys(text(given.key));
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

int pp_join(const pp_options* options, pp_session** session) {
  *session = new pp_session;
  pp_session* const made = *session;
  return guarded(made, [&] {
    const pp_options given = options == nullptr ? pp_options{} : *options;
    made->session = std::make_unique<pushpull::Session>(
        worker_options(given), pushpull::PeerPort{text(given.listen), text(given.advertise)});
    const pushpull::Job& job = made->session->wait_joined();
    made->job = {static_cast<uint64_t>(job.seed), job.global_batch, job.micro_batch};
  });
}

pp_job pp_job_of(const pp_session* session) { return session->job; }

int pp_attach(pp_session* session, const pp_model* model) {
  return guarded(session, [&] { joined(session).attach(external_spec(*model)); });
}

int pp_next(pp_session* session, pp_task* task) {
  return guarded(session, [&] {
    *task = {};
    std::optional<pushpull::HandedTask> next = joined(session).tasks().next();
    if (!next) return joined(session).wait_end();
    session->task = *std::move(next);
    *task = {session->task.trains ? PP_TRAIN : PP_EVALUATE, session->task.step,
             session->task.micro_batch, session->task.indices.data(), session->task.indices.size()};
  });
}

int pp_weights(pp_session* session, size_t tensor, float* to, size_t floats) {
  return guarded(session, [&] { joined(session).tasks().copy_weights(tensor, {to, floats}); });
}

int pp_gradient(pp_session* session, size_t tensor, const float* from, size_t floats) {
  return guarded(session, [&] { joined(session).tasks().set_gradient(tensor, {from, floats}); });
}

int pp_end(pp_session* session, float loss) {
  return guarded(session, [&] { joined(session).tasks().end_training(loss); });
}

int pp_report(pp_session* session, double loss_sum, int64_t counted, double metric_sum) {
  return guarded(session, [&] {
    joined(session).tasks().end_evaluation({loss_sum, counted, metric_sum});
  });
}

const char* pp_error(const pp_session* session) {
  if (session == nullptr) return "[client] the session is NULL";
  const std::lock_guard lock(session->mutex);
  return session->error.c_str();  // set once
}

void pp_free(pp_session* session) { delete session; }

void pp_set_log(void (*log)(void* user, const char* line), void* user) {
  if (log == nullptr) return pushpull::set_print_sink({});
  pushpull::set_print_sink(
      [log, user](int /*fd*/, std::string_view line) { log(user, std::string(line).c_str()); });
}
