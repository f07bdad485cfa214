/* A worker in C: fits y = 3 a - 2 b + 1 through a job's servers. Arguments: --join ADDRESS
 * [--insecure] [--leave-at STEP] [--fork]. Its samples are functions of their index. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/pushpull.h"

enum { kBias, kWeight };

/* Returns a number from -1 to 1 for feature `feature` of a sample. */
static float feature_of(int64_t sample, int feature) {
  uint32_t bits = (uint32_t)sample * 2654435761u + (uint32_t)feature * 40503u;
  bits ^= bits >> 15;
  bits *= 2246822519u;
  bits ^= bits >> 13;
  return (float)(bits & 0xffffu) / 32768.0f - 1.0f;
}

struct line {
  float bias;
  float weight[2];
};

/* Computes a task's samples: the sum of squared errors, and of the gradients of that sum. */
static float squared_errors(const struct line* line, const pp_task* task, struct line* gradient) {
  const int64_t first = task->kind == PP_EVALUATE ? 1000000 : 0; /* other samples than training's */
  float sum = 0.0f;
  memset(gradient, 0, sizeof(*gradient));
  for (size_t i = 0; i < task->samples; ++i) {
    const float a = feature_of(first + task->indices[i], 0);
    const float b = feature_of(first + task->indices[i], 1);
    const float wanted = 3.0f * a - 2.0f * b + 1.0f;
    const float error = line->weight[0] * a + line->weight[1] * b + line->bias - wanted;
    sum += error * error;
    gradient->bias += 2.0f * error;
    gradient->weight[0] += 2.0f * error * a;
    gradient->weight[1] += 2.0f * error * b;
  }
  return sum;
}

static int train(pp_session* session, const pp_task* task, struct line* gradient, float sum) {
  const float n = (float)task->samples;
  gradient->bias /= n;
  gradient->weight[0] /= n;
  gradient->weight[1] /= n;
  int code = pp_gradient(session, kBias, &gradient->bias, 1);
  if (code == 0) code = pp_gradient(session, kWeight, gradient->weight, 2);
  return code == 0 ? pp_end(session, sum / n) : code;
}

static int work(pp_session* session, long long leave_at) {
  const int64_t one[] = {1};
  const int64_t two[] = {1, 2};
  const pp_tensor tensors[] = {
      {.name = "bias", .shape = one, .dimensions = 1, .init = PP_CONSTANT, .value = 0.0f},
      {.name = "weight", .shape = two, .dimensions = 2, .init = PP_UNIFORM, .value = 0.5f}};
  const pp_head head = {.name = "line", .metric = PP_MEAN_SQUARED_ERROR};
  const pp_model model = {.tensors = tensors,
                          .tensor_count = 2,
                          .heads = &head,
                          .head_count = 1,
                          .train_samples = 4096,
                          .test_samples = 100,
                          .data_digest = "3a-2b+1",
                          .numerics = "C, f32"};
  int code = pp_attach(session, &model);
  while (code == 0) {
    pp_task task;
    code = pp_next(session, -1, &task);
    if (code != 0 || task.kind == PP_END || task.step == leave_at) break;
    struct line line;
    struct line gradient;
    code = pp_weights(session, kBias, &line.bias, 1);
    if (code == 0) code = pp_weights(session, kWeight, line.weight, 2);
    if (code != 0) break;
    const float sum = squared_errors(&line, &task, &gradient);
    const pp_sums sums = {sum, (int64_t)task.samples, sum};
    code = task.kind == PP_TRAIN ? train(session, &task, &gradient, sum)
                                 : pp_report(session, &sums, 1);
  }
  return code;
}

/* Returns 0 if a forked process is refused. */
static int fork_once(pp_session* session) {
  const pid_t child = fork();
  if (child == 0) {
    pp_task task;
    const int code = pp_next(session, 0, &task);
    const int is_named = strstr(pp_error(session), "forked") != NULL;
    pp_free(session);
    _exit(code != 0 && is_named ? 0 : 1);
  }
  int status = 1;
  return waitpid(child, &status, 0) == child ? status : 1;
}

int main(int argc, char** argv) {
  pp_options options = {0};
  int forks = 0;
  long long leave_at = -2; /* never: an evaluation has step -1 */
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--insecure") == 0) options.insecure = 1;
    if (strcmp(argv[i], "--fork") == 0) forks = 1;
    if (strcmp(argv[i], "--join") == 0 && i + 1 < argc) options.join = argv[++i];
    if (strcmp(argv[i], "--leave-at") == 0 && i + 1 < argc) leave_at = atoll(argv[++i]);
  }
  pp_session* session = NULL;
  int code = pp_open(&options, &session);
  pp_job job = {0};
  while (code == 0 && job.micro_batch == 0) code = pp_join(session, 100, &job);
  if (code == 0 && forks) code = fork_once(session);
  if (code == 0) code = work(session, leave_at);
  if (code != 0) fprintf(stderr, "linear_regression: error: %s\n", pp_error(session));
  pp_free(session);
  return code;
}
