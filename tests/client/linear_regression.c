/* A worker in C, for tests of whole jobs: fits y = 3 a - 2 b + 1 through a job's servers. Its samples
 * are functions of their index. It checks what the library says of its tasks, and prints it at the
 * end. Arguments: --join ADDRESS [--insecure], of the model [--own-weights VALUE] [--statistic]
 * [--near] [--lr-of-bias RATE] [--no-head], and, once in the task of a step or at the next one,
 * [--free-in STEP] [--free-after STEP] [--fail-in STEP] [--hang-in STEP] [--return-in STEP]
 * [--exit-in STEP] [--nan-in STEP]; [--fork]. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/pushpull.h"

enum { kBias, kWeight, kMean, kTensors };
enum { kNever = -2 }; /* an evaluation has step -1 */

static const char* const kFailure = "my own mistake, \"at line 7\"";

struct settings {
  double lr_of_bias; /* < 0: the job's */
  float own_weights; /* NAN: the servers draw them */
  int statistic, near_head, no_head, forks;
  int64_t free_in, free_after, fail_in, hang_in, return_in, exit_in, nan_in; /* steps */
};

struct line {
  float bias;
  float weight[2];
  float mean; /* a statistic: of feature 0 */
};

/* What the library says of the tasks. */
struct tally {
  struct line copied;          /* the weights of the task before */
  int64_t announced[4096][2];  /* step, micro-batch; a ring */
  size_t announcements, tasks, same, known;
};

/* Returns a number from -1 to 1 for feature `feature` of a sample. */
static float feature_of(int64_t sample, int feature) {
  uint32_t bits = (uint32_t)sample * 2654435761u + (uint32_t)feature * 40503u;
  bits ^= bits >> 15;
  bits *= 2246822519u;
  bits ^= bits >> 13;
  return (float)(bits & 0xffffu) / 32768.0f - 1.0f;
}

/* Computes a task's samples: sums of the squared errors and of their gradients, and of feature 0.
 * near: the number of errors below 0.5. */
static float squared_errors(const struct line* line, const pp_task* task, struct line* sums,
                            int* near) {
  const int64_t first = task->kind == PP_EVALUATE ? 1000000 : 0; /* other samples than training's */
  float sum = 0.0f;
  memset(sums, 0, sizeof(*sums));
  *near = 0;
  for (size_t i = 0; i < task->samples; ++i) {
    const float a = feature_of(first + task->indices[i], 0);
    const float b = feature_of(first + task->indices[i], 1);
    const float wanted = 3.0f * a - 2.0f * b + 1.0f;
    const float error = line->weight[0] * a + line->weight[1] * b + line->bias - wanted;
    sum += error * error;
    *near += error > -0.5f && error < 0.5f;
    sums->bias += 2.0f * error;
    sums->weight[0] += 2.0f * error * a;
    sums->weight[1] += 2.0f * error * b;
    sums->mean += a;
  }
  return sum;
}

static int pull(pp_session* session, const struct settings* set, struct line* line) {
  int code = pp_weights(session, kBias, &line->bias, 1);
  if (code == 0) code = pp_weights(session, kWeight, line->weight, 2);
  if (code == 0 && set->statistic) code = pp_weights(session, kMean, &line->mean, 1);
  return code;
}

static int push(pp_session* session, const struct settings* set, const pp_task* task,
                struct line* sums, float sum) {
  const float n = (float)task->samples;
  sums->bias /= n;
  sums->weight[0] /= n;
  sums->weight[1] /= n;
  sums->mean /= n;
  int code = pp_gradient(session, kBias, &sums->bias, 1);
  if (code == 0) code = pp_gradient(session, kWeight, sums->weight, 2);
  /* the first micro-batch has none: the value stays */
  if (code == 0 && set->statistic && task->micro_batch > 0) {
    code = pp_gradient(session, kMean, &sums->mean, 1);
  }
  return code == 0 ? pp_end(session, task->step == set->nan_in ? NAN : sum / n) : code;
}

static int report(pp_session* session, const struct settings* set, const pp_task* task, float sum,
                  int near) {
  const int64_t n = (int64_t)task->samples;
  const pp_sums sums[] = {{sum, n, sum}, {sum, n, near}};
  return pp_report(session, sums, set->near_head ? 2 : 1);
}

/* Fails the session if a task that says so has other weights than the one before. */
static void check_weights(pp_session* session, const struct settings* set, struct tally* tally,
                          const pp_task* task) {
  struct line line = {0};
  if (pull(session, set, &line) != 0) return;
  tally->same += task->same_weights != 0;
  if (task->same_weights && memcmp(&line, &tally->copied, sizeof(line)) != 0) {
    pp_fail(session, "same_weights is not true");
  }
  tally->copied = line;
}

static void note_announced(pp_session* session, struct tally* tally) {
  pp_task soon;
  while (pp_announced(session, &soon) == 0 && soon.kind != PP_NOTHING_YET) {
    int64_t* slot = tally->announced[tally->announcements++ % 4096];
    slot[0] = soon.step;
    slot[1] = soon.micro_batch;
    if (soon.samples == 0) pp_fail(session, "a task without samples was announced");
  }
}

static void count_announced(struct tally* tally, const pp_task* task) {
  const size_t end = tally->announcements;
  for (size_t i = end < 64 ? 0 : end - 64; i < end; ++i) {
    int64_t* slot = tally->announced[i % 4096];
    if (slot[0] != task->step || slot[1] != task->micro_batch) continue;
    slot[0] = kNever;
    ++tally->known;
    return;
  }
}

static void* fail_now(void* session) {
  pp_fail(session, kFailure);
  return NULL;
}

static void* exit_now(void* session) {
  (void)session;
  exit(3);
}

/* Runs `function` on another thread and waits for its end. */
static void on_another_thread(void* (*function)(void*), pp_session* session) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, function, session) == 0) pthread_join(thread, NULL);
}

/* Returns 1 if the program is to stop in this task. */
static int stops_in(pp_session* session, const struct settings* set, const pp_task* task) {
  if (task->step == set->hang_in) nanosleep(&(struct timespec){5, 0}, NULL);
  if (task->step == set->free_in) return 1;
  if (task->step == set->return_in) exit(3); /* as a return from main */
  if (task->step == set->exit_in) on_another_thread(exit_now, session);
  if (task->step == set->fail_in) on_another_thread(fail_now, session);
  return 0;
}

static int attach(pp_session* session, const struct settings* set) {
  const int64_t one[] = {1};
  const int64_t two[] = {1, 2};
  const float v = set->own_weights;
  const float weights[] = {v, v, -v, v};
  const double* lr = set->lr_of_bias < 0.0 ? NULL : &set->lr_of_bias;
  const pp_tensor tensors[] = {
      {.name = "bias", .shape = one, .dimensions = 1, .init = PP_CONSTANT, .lr = lr},
      {.name = "weight", .shape = two, .dimensions = 2, .init = PP_UNIFORM, .value = 0.5f},
      {.name = "mean", .shape = one, .dimensions = 1, .is_average = 1, .average_momentum = 0.25f}};
  const pp_head heads[] = {{"line", PP_MEAN_SQUARED_ERROR}, {"near", PP_ACCURACY}};
  const pp_model model = {.tensors = tensors,
                          .tensor_count = set->statistic ? kTensors : kMean,
                          .heads = heads,
                          .head_count = set->no_head ? 0 : set->near_head ? 2 : 1,
                          .weights = isnan(v) ? NULL : weights,
                          .train_samples = 4096,
                          .test_samples = 100,
                          .data_digest = "3a-2b+1",
                          .numerics = "C, f32"};
  return pp_attach(session, &model);
}

static int work(pp_session* session, const struct settings* set, struct tally* tally) {
  int code = attach(session, set);
  while (code == 0) {
    pp_task task;
    code = pp_next(session, -1, &task);
    if (code != 0 || task.kind == PP_END || stops_in(session, set, &task)) break;
    ++tally->tasks;
    check_weights(session, set, tally, &task);
    count_announced(tally, &task);
    note_announced(session, tally);
    struct line sums;
    int near = 0;
    const float sum = squared_errors(&tally->copied, &task, &sums, &near);
    code = task.kind == PP_TRAIN ? push(session, set, &task, &sums, sum)
                                 : report(session, set, &task, sum, near);
    if (task.step == set->free_after) break;
  }
  return code;
}

/* Returns 0 if a forked process is refused. */
static int fork_once(pp_session* session) {
  const pid_t child = fork();
  if (child == 0) {
    pp_task task;
    const int codes[] = {pp_next(session, 0, &task), pp_announced(session, &task),
                         pp_fail(session, "no"), pp_end(session, 0.0f)};
    int refused = strstr(pp_error(session), "forked") != NULL;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); ++i) refused = refused && codes[i] != 0;
    pp_free(session);
    exit(refused ? 0 : 1); /* with the destructors of the parent's libraries */
  }
  int status = 1;
  return waitpid(child, &status, 0) == child ? status : 1;
}

/* Sets the setting of an argument with a value. Returns 0 if there is none of this name. */
static int set_value(struct settings* set, pp_options* options, const char* name, const char* value) {
  const struct {
    const char* name;
    int64_t* step;
  } steps[] = {{"--free-in", &set->free_in}, {"--free-after", &set->free_after},
               {"--fail-in", &set->fail_in}, {"--hang-in", &set->hang_in},
               {"--return-in", &set->return_in}, {"--exit-in", &set->exit_in},
               {"--nan-in", &set->nan_in}};
  for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); ++i) {
    if (strcmp(name, steps[i].name) == 0) return (*steps[i].step = atoll(value), 1);
  }
  if (strcmp(name, "--join") == 0) return (options->join = value, 1);
  if (strcmp(name, "--own-weights") == 0) return (set->own_weights = (float)atof(value), 1);
  if (strcmp(name, "--lr-of-bias") == 0) return (set->lr_of_bias = atof(value), 1);
  return 0;
}

static void set_flag(struct settings* set, pp_options* options, const char* name) {
  if (strcmp(name, "--insecure") == 0) options->insecure = 1;
  if (strcmp(name, "--fork") == 0) set->forks = 1;
  if (strcmp(name, "--statistic") == 0) set->statistic = 1;
  if (strcmp(name, "--near") == 0) set->near_head = 1;
  if (strcmp(name, "--no-head") == 0) set->no_head = 1;
}

int main(int argc, char** argv) {
  pp_options options = {0};
  struct settings set = {-1.0,   NAN,    0,      0,      0,      0,     kNever,
                         kNever, kNever, kNever, kNever, kNever, kNever};
  static struct tally tally;
  for (int i = 1; i < argc; ++i) {
    if (i + 1 < argc && set_value(&set, &options, argv[i], argv[i + 1])) {
      ++i;
    } else {
      set_flag(&set, &options, argv[i]);
    }
  }
  pp_session* session = NULL;
  int code = pp_open(&options, &session);
  pp_job job = {0};
  while (code == 0 && job.micro_batch == 0) code = pp_join(session, 100, &job);
  if (code == 0 && set.forks) code = fork_once(session);
  if (code == 0) code = work(session, &set, &tally);
  if (code != 0) fprintf(stderr, "linear_regression: error: %s\n", pp_error(session));
  struct timespec begin;
  struct timespec end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  pp_free(session);
  clock_gettime(CLOCK_MONOTONIC, &end);
  printf("tasks %zu, same weights %zu, announced %zu, of these tasks %zu, free %.2f s\n", tally.tasks,
         tally.same, tally.announcements, tally.known,
         (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec));
  return code;
}
