// A worker of a pushpull job with a model and data of the caller's own, in C. docs/c-api.md describes
// its use.
//
//     pp_session* session = NULL;
//     int code = pp_open(&options, &session);
//     if (code == 0) code = pp_join(session, -1, &job);
//     if (code == 0) code = pp_attach(session, &model);
//     while (code == 0 && (code = pp_next(session, -1, &task)) == 0 && task.kind != PP_END) {
//       if (!task.same_weights) { ... pp_weights of each tensor, or pp_all_weights ... }
//       ... forward over the samples with task.indices ...
//       if (task.kind == PP_TRAIN) { ... backward, pp_gradient ...; code = pp_end(session, loss); }
//       else code = pp_report(session, sums, heads);
//     }
//     pp_free(session);
//
// Functions return 0, or an exit code of docs/exit-codes.md; pp_error has the line that says why. A
// session has one caller's thread; only pp_error, pp_fail and pp_announced may be called by others.
// The library starts threads of its own. It changes no signal, no standard stream, no locale and no
// environment variable, and never ends the process. In a forked process all functions refuse the
// session.
#ifndef PUSHPULL_CLIENT_PUSHPULL_H
#define PUSHPULL_CLIENT_PUSHPULL_H

#include <float.h>
#include <stddef.h>
#include <stdint.h>

#define PP_API __attribute__((visibility("default")))

#ifdef __cplusplus
#define PP_INT : int  // so that C++ may read any number that a C program has put there
extern "C" {
#else
#define PP_INT
#endif

typedef struct pp_session pp_session;

typedef struct pp_options {
  const char* join;       // tcp://HOST:PORT of the first server, or "auto"; NULL: PUSHPULL_JOIN's
  double join_timeout;    // seconds to wait for it; 0: 60
  const char* key;        // file with the job's key; NULL: as pushpull-worker finds it
  int insecure;           // not 0: no key; also with key NULL if PUSHPULL_INSECURE is 1
  const char* listen;     // for all-reduce, as pushpull-worker --listen; NULL: by itself
  const char* advertise;  // the same for --advertise
  // The job that the program means, as lines of a job file; NULL: any. A first server without a job takes it from
  // the first worker that joins; in a job that exists, pp_join fails (2) if a key has another value there.
  const char* job;
} pp_options;

// The job's keys that shape a worker's loop.
typedef struct pp_job {
  uint64_t seed;
  int64_t global_batch;
  int64_t micro_batch;   // 0: the worker has not joined yet
  double learning_rate;  // the job's lr, before its schedule
  double weight_decay;
  double task_timeout;  // seconds; 0: none
  int same_bits;        // not 0: the strategy promises the same bits for any number of workers
  int workers;          // that the job was started for
  int stages;           // of the model, in a group of that many workers; 1: it is not divided
  int place;            // of this process at its launcher, from 0: PUSHPULL_RANK; -1: not known
  double loss_timeout;  // seconds after which the loss of a worker is known
  int rank;             // of this worker, from 0; no other worker that lives has it. It stays
  int64_t steps;        // of the job; 0: as many as `epochs` have
  int64_t epochs;
  const char* strategy;     // as in the job file, "ssp:2"; valid until pp_free
  int64_t checkpoint_keep;  // number of checkpoints that the job keeps
  int says_rate;  // not 0: lr-schedule = external: the program says the rate, by pp_set_lr
} pp_job;

// The servers make the initial weights, from the job's seed, unless the model has weights.
typedef enum pp_init PP_INT {
  PP_CONSTANT = 0,  // every element is value
  PP_UNIFORM = 1,   // from -value to value
  PP_NORMAL = 2     // mean 0, standard deviation value
} pp_init;

typedef struct pp_tensor {
  const char* name;      // UTF-8 without control characters, at most 1024 bytes; not "__metadata__"
  const int64_t* shape;  // dimensions numbers > 0
  size_t dimensions;
  pp_init init;
  float value;
  int no_decay;  // not 0: weight decay leaves it out, unless the job's no-decay decides
  // The tensor's own, in place of the job's; NULL: the job's. The job's schedule multiplies lr, too.
  const double* lr;
  const double* weight_decay;
  // Not 0: a running statistic, such as BatchNorm's. pp_gradient passes its value in the micro-batch,
  // and the servers set it to (1 - average_momentum) old + average_momentum mean of these values.
  int is_average;
  float average_momentum;  // 0 to 1
} pp_tensor;

typedef enum pp_metric PP_INT {
  PP_ACCURACY = 0,            // counts correct targets
  PP_MEAN_SQUARED_ERROR = 1,  // adds squared errors
  PP_EXACT_MATCH = 2,         // counts targets that are correct as a whole
  PP_PERPLEXITY = 3,          // adds losses
  // Has no sums in pp_report, which ignores them: the program computes the value from named sums (PP_VALUES).
  PP_VALUE = 4,
  PP_COST = 5  // the same, and less is better
} pp_metric;

// An output of the model with a loss and a metric. The first one drives charts and targets.
typedef struct pp_head {
  const char* name;  // 1 to 64 of a-z, A-Z, 0-9, '-' and '_'
  pp_metric metric;
} pp_head;

// The same in all workers of a job, except weights. The library copies it.
typedef struct pp_model {
  const pp_tensor* tensors;
  size_t tensor_count;
  const pp_head* heads;
  size_t head_count;  // 0: nothing is evaluated
  // Initial weights of all tensors, one after the other; NULL: the servers draw them by init. The job
  // begins with those of the worker with the lowest rank, unless it resumes.
  const float* weights;
  int64_t train_samples;
  int64_t test_samples;
  const char* data_digest;  // text, in UTF-8, that differs if the data differ
  const char* numerics;     // text, in UTF-8, that differs if the arithmetic may differ in a bit
  // A model that the programs of a group divide: all of the above is that of one stage, but heads,
  // samples and digests are those of the model. Its tensors are those of stage 0, 1, ...
  int stages;  // as in pp_job; 0: this is the whole model
  int stage;   // from 0
  int port;    // at which this program listens for the others of its group; 0: at none
  const char* stage_digest;  // text, in UTF-8, that differs if data of the stage alone differ
  // For a job with sampler = weighted: of each training sample, a number from 0; each place of an epoch
  // draws a sample by these, with replacement. NULL: there are none. Part of the data's digest.
  const double* sample_weights;
  // Not 0: each epoch has the training samples in their order, whatever `shuffle` of the job says: a
  // task's indices are places in its epoch, for a program that reads a stream.
  int in_order;
} pp_model;

typedef enum pp_kind PP_INT {
  PP_END = 0,
  PP_TRAIN = 1,
  PP_EVALUATE = 2,
  PP_NOTHING_YET = 3,
  PP_REGROUP = 4,
  PP_VALUES = 5
} pp_kind;

typedef struct pp_task {
  pp_kind kind;
  int64_t step;            // PP_EVALUATE: -1; PP_VALUES: of the evaluation
  int64_t micro_batch;     // PP_TRAIN: of the step; PP_EVALUATE: chunk of the test split
  int64_t epoch;           // PP_TRAIN
  const int64_t* indices;  // of samples in the split
  size_t samples;
  // Not 0: the weights are those of the task before; they need not be copied again. PP_END: 0 if
  // pp_all_weights copies those of the job's end now, which a job without evaluations may have.
  int same_weights;
  double
      learning_rate;  // PP_TRAIN: of the step, by the job's schedule, or as pp_set_lr has said it
  // PP_TRAIN: step of the newest checkpoint at or before this one, or that which the term began with; the
  // worker gets no task of an earlier step any more. PP_END, also of a stop (75): the last one.
  int64_t checkpoint;
  int64_t term_start;  // PP_TRAIN and PP_END: step that the term began with
  uint64_t term;  // another one once a server was lost and the job has gone back to a checkpoint
} pp_task;

// Begins to join a job with model = external. Sets *session even if it fails, for pp_error; free it
// in any case.
PP_API int pp_open(const pp_options* options, pp_session** session);
// Waits until the worker has joined, at most for timeout_ms, or as long as it takes if that is < 0.
// Sets *job: its micro_batch is 0 if the worker has not joined yet.
PP_API int pp_join(pp_session* session, int timeout_ms, pp_job* job);
// Declares the model and the data. Call once, after the worker has joined and before pp_next.
PP_API int pp_attach(pp_session* session, const pp_model* model);

// Waits for the next task, as pp_join does: PP_NOTHING_YET if there is none in time, PP_END after the
// end of the job, whose code it returns if it has failed. The former task must have ended.
// PP_REGROUP, if the model has stages: call pp_next_group first.
// task->indices are valid until the next call.
PP_API int pp_next(pp_session* session, int timeout_ms, pp_task* task);
// The programs that compute the stages of a model together, each on the same tasks in the same order.
typedef struct pp_group {
  int64_t
      number;  // another one after each change; 0: the last group has ended, no other one is there
  const char* host;  // of the worker with stage 0; valid until the next call
  int port;          // of its program, as in pp_model
  int over;          // not 0: the job is over, and there is no other group
} pp_group;

// Waits for a group other than the last one that this has returned, as pp_join does. Without one in time
// *group is the last group, or has the number 0 if that has ended. A group ends when it loses a worker
// or its work changes. The task that is open then is void: calls for it succeed and change nothing, and
// this call drops it. A program computes it again in the next group.
PP_API int pp_next_group(pp_session* session, int timeout_ms, pp_group* group);

// Returns, without waiting, the next task that this worker will probably get, so that its samples can
// be read ahead: each once, in order, or PP_NOTHING_YET. A task that was announced may not come, and
// one may come that was not announced. One thread at a time, also while a task is open.
// task->indices are valid until the next call.
PP_API int pp_announced(pp_session* session, pp_task* task);
// Copies the weights of a tensor in the task, and waits until they have arrived.
//   floats: the tensor's elements.
PP_API int pp_weights(pp_session* session, size_t tensor, float* to, size_t floats);
// Copies the weights of all tensors, each as soon as it has arrived. Waits for them as pp_join does;
// *missing is the number of tensors that have not arrived in time: call again.
//   to: of each tensor; NULL: it is not copied. Set to NULL once it is.
PP_API int pp_all_weights(pp_session* session, int timeout_ms, float** to, size_t tensors,
                          size_t* missing);
// Sets *changed to the first tensor whose values are no longer those that pp_all_weights copied last, or
// to `tensors`: the servers do not see what a program does to its copy. Also between tasks.
//   at: of each tensor; NULL: it is not compared.
PP_API int pp_changed_weights(pp_session* session, const float* const* at, size_t tensors,
                              size_t* changed);
// PP_TRAIN: copies the gradient of the micro-batch's mean loss for a tensor, which may be on its way
// to a server from then on. Once for each tensor, best in backward order.
PP_API int pp_gradient(pp_session* session, size_t tensor, const float* from, size_t floats);
// The same, but a thread of the library copies it, while the program computes others: `from` must not
// change or be freed before pp_end, pp_await_lent or pp_free has returned.
PP_API int pp_lend_gradient(pp_session* session, size_t tensor, const float* from, size_t floats);
// Says the learning rate that holds from the open task on, or from the next one, until the program says another one. The
// job must have lr-schedule = external. The rate of a step is the one that holds in the worker with micro-batch 0 when
// it ends that task; a program that says none keeps the rate of the step before, at first the job's lr.
PP_API int pp_set_lr(pp_session* session, double rate);

// The newest step that is complete in the weights of a task.
typedef struct pp_progress {
  int64_t steps;         // complete ones of the job
  double loss;           // mean of that step over all workers; NAN if it is not known
  double learning_rate;  // of that step, with lr-schedule = external; NAN if it is not known
} pp_progress;

// Sets *progress to that of the open task, once pp_all_weights has copied its last tensor; under async, ssp and buffered
// others may be further. Also at PP_END. A worker of an all-reduce, and of some stages, hears of none: steps is 0.
PP_API int pp_get_progress(pp_session* session, pp_progress* progress);

// Adds a value to those of this name, of all workers: the job shows their mean since its last line of metrics, and
// over the run at the end. One that is not finite is left out. Values of work that is computed again count again.
//   name: 1 to 64 letters, digits and _ - . /; at most 64 names. Any thread.
PP_API int pp_log(pp_session* session, const char* name, double value);
// Waits until all gradients that were lent have been copied.
PP_API int pp_await_lent(pp_session* session);
// A loss for pp_end that is not known: the job shows the mean of the others, or none.
#define PP_NO_LOSS (-FLT_MAX)
// PP_TRAIN: ends the task with the micro-batch's mean loss. A tensor without a gradient has zeros, a
// running statistic without a value keeps the task's weights.
PP_API int pp_end(pp_session* session, float loss);

// Sums over the counted targets of a chunk, for one head.
typedef struct pp_sums {
  double loss;
  int64_t counted;
  double metric;  // see pp_metric
} pp_sums;

// PP_EVALUATE: adds to the sum of this name over the samples of the chunk. Chunks of all workers are added in order.
//   name: as of pp_log; at most 64 names.
PP_API int pp_add_sum(pp_session* session, const char* name, double value);

// PP_EVALUATE: ends the task, unless the sums cannot be right: more counted targets than a chunk has,
// or other than a whole number of correct ones, from 0 to the counted ones.
//   sums: of each head, in the order of pp_model; of none in a stage that is not the last one.
PP_API int pp_report(pp_session* session, const pp_sums* sums, size_t heads);

// A named sum over all chunks of an evaluation.
typedef struct pp_total {
  const char* name;  // valid until the next call of pp_next
  double value;
} pp_total;

// PP_VALUES: the chunks of an evaluation are complete, and the job waits for the values of the heads with PP_VALUE and
// PP_COST. Sets *totals to its named sums, in alphabetical order, and *count to their number.
PP_API int pp_totals(pp_session* session, const pp_total** totals, size_t* count);
// PP_VALUES: ends the task with the values of these heads, in order; NAN: there is none. Of several workers' values, which
// must be equal, the first ones count.
PP_API int pp_report_values(pp_session* session, const double* values, size_t heads);

// The result of one of the job's evaluations for one head, over the chunks of all workers. Both values are NAN if
// no target was counted.
typedef struct pp_result {
  double loss;    // mean of a target
  double metric;  // accuracy and exact match: from 0 to 1
} pp_result;

// Sets *step to that of the newest evaluation whose result this worker knows, or to -1, and `results` to
// those of its first `heads` heads. Does not wait. Also after PP_END.
PP_API int pp_evaluated(pp_session* session, int64_t* step, pp_result* results, size_t heads);

// Ends the worker, because the program cannot go on: it leaves the job with `why`, one line, as the
// reason, and on-worker-loss decides about the job. Later calls return 1, and pp_error returns
// `why`. Does not wait: pp_free does, until the reason is sent. Any
// thread, once pp_open has returned.
PP_API int pp_fail(pp_session* session, const char* why);

// Returns the line of the last call that failed, or "". Valid until this thread calls pp_error
// again, or pp_free.
PP_API const char* pp_error(const pp_session* session);
// Ends the session. If the job goes on, the worker leaves it: the others share its work, whatever
// on-worker-loss says, and without others the job stops with a checkpoint and code 75. (allreduce, and a
// job that has not begun, lose it.) Waits until the worker has left, which takes up to a second if the
// servers do not answer. Accepts NULL.
PP_API void pp_free(pp_session* session);

// Log lines of the library, of all sessions, go to `log`, or to standard error if it is NULL. Called
// by any thread, by one at a time. `line` ends with a line break.
PP_API void pp_set_log(void (*log)(void* user, const char* line), void* user);

#ifdef __cplusplus
}
#endif

#endif
