// A worker of a pushpull job with a model and data of the caller's own, in C.
//
//     pp_session* session = NULL;
//     int code = pp_open(&options, &session);
//     if (code == 0) code = pp_join(session, -1, &job);
//     if (code == 0) code = pp_attach(session, &model);
//     while (code == 0 && (code = pp_next(session, -1, &task)) == 0 && task.kind != PP_END) {
//       ... pp_weights, forward ...
//       if (task.kind == PP_TRAIN) { ... backward, pp_gradient ...; code = pp_end(session, loss); }
//       else code = pp_report(session, loss_sum, counted, metric_sum);
//     }
//     pp_free(session);
//
// Functions return 0, or an exit code of docs/exit-codes.md; pp_error has the line that says why. A
// session has one caller's thread; only pp_error may be called by others. The library starts threads
// of its own. It changes no signal, no standard stream and no locale, and never ends the process. In a
// forked process all functions refuse the session.
#ifndef PUSHPULL_CLIENT_PUSHPULL_H
#define PUSHPULL_CLIENT_PUSHPULL_H

#include <stddef.h>
#include <stdint.h>

#define PP_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pp_session pp_session;

typedef struct pp_options {
  const char* join;       // tcp://HOST:PORT of the first server; NULL: PUSHPULL_JOIN's
  double join_timeout;    // seconds to wait for it; 0: 60
  const char* key;        // file with the job's key; NULL: as pushpull-worker finds it
  int insecure;           // not 0: no key
  const char* listen;     // for all-reduce, as pushpull-worker --listen; NULL: by itself
  const char* advertise;  // the same for --advertise
} pp_options;

// The job's keys that shape a worker's loop.
typedef struct pp_job {
  uint64_t seed;
  int64_t global_batch;
  int64_t micro_batch;
} pp_job;

// The servers make the initial weights, from the job's seed.
typedef enum pp_init {
  PP_CONSTANT = 0,  // every element is value
  PP_UNIFORM = 1,   // from -value to value
  PP_NORMAL = 2     // mean 0, standard deviation value
} pp_init;

typedef struct pp_tensor {
  const char* name;
  const int64_t* shape;  // dimensions numbers > 0
  size_t dimensions;
  pp_init init;
  float value;
  int no_decay;  // not 0: weight decay leaves it out, unless the job's no-decay decides
} pp_tensor;

typedef enum pp_metric { PP_ACCURACY = 0, PP_MEAN_SQUARED_ERROR = 1 } pp_metric;

// The same in all workers of a job. The library copies it.
typedef struct pp_model {
  const pp_tensor* tensors;
  size_t tensor_count;
  int64_t train_samples;
  int64_t test_samples;
  const char* data_digest;  // text that differs if the data differ
  const char* numerics;     // text that differs if the arithmetic may differ in a bit
  pp_metric metric;
} pp_model;

typedef enum pp_kind { PP_END = 0, PP_TRAIN = 1, PP_EVALUATE = 2, PP_NOTHING_YET = 3 } pp_kind;

typedef struct pp_task {
  pp_kind kind;
  int64_t step;            // PP_TRAIN
  int64_t micro_batch;     // PP_TRAIN: of the step; PP_EVALUATE: chunk of the test split
  const int64_t* indices;  // of samples in the split; valid until the next pp_next
  size_t samples;
} pp_task;

// Begins to join a job with model = external. Sets *session even if it fails, for pp_error; free it
// in any case.
PP_API int pp_open(const pp_options* options, pp_session** session);
// Waits until the worker has joined, at most for timeout_ms, or as long as it takes if that is < 0.
// Sets *job: its micro_batch is 0 if the worker has not joined yet.
PP_API int pp_join(pp_session* session, int timeout_ms, pp_job* job);
// Declares the model and the data. Call once, before pp_next.
PP_API int pp_attach(pp_session* session, const pp_model* model);

// Waits for the next task, as pp_join does: PP_NOTHING_YET if there is none in time, PP_END after the
// end of the job, whose code it returns if it has failed. The former task must have ended.
PP_API int pp_next(pp_session* session, int timeout_ms, pp_task* task);
// Copies the weights of a tensor in the task. floats: the tensor's elements.
PP_API int pp_weights(pp_session* session, size_t tensor, float* to, size_t floats);
// PP_TRAIN: copies the gradient of the micro-batch's mean loss for a tensor, which may be on its way
// to a server from then on. Once for each tensor, best in backward order.
PP_API int pp_gradient(pp_session* session, size_t tensor, const float* from, size_t floats);
// PP_TRAIN: ends the task with the micro-batch's mean loss. A tensor without a gradient has zeros.
PP_API int pp_end(pp_session* session, float loss);
// PP_EVALUATE: ends the task with the sum of the losses of `counted` targets, and the sum of the
// metric: correct targets, or squared errors.
PP_API int pp_report(pp_session* session, double loss_sum, int64_t counted, double metric_sum);

// Returns the line of the first failure, or "". Valid until pp_free.
PP_API const char* pp_error(const pp_session* session);
// Ends the session. If the job goes on, it loses this worker. Accepts NULL.
PP_API void pp_free(pp_session* session);

// Log lines of the library, of all sessions, go to `log`, or to standard error if it is NULL. Called
// by any thread, by one at a time. `line` ends with a line break.
PP_API void pp_set_log(void (*log)(void* user, const char* line), void* user);

#ifdef __cplusplus
}
#endif

#endif
