// Hands tasks from the trainer's thread to the caller's, and gradients back. One task at a time: the
// trainer's thread waits in `train` or `evaluate` until the caller has ended the task. A task is
// void once its call has thrown; the caller's further calls for it then change nothing.
//
// A caller with a stage of a model gets the tasks of one group. When the group changes, the open task is
// void, and the caller enters the next group before its next task.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/layout/fields.h"
#include "common/layout/metric.h"
#include "models/model.h"
#include "models/pipeline.h"

namespace pushpull {

// Waits on a condition variable with or without a limit. Any thread.

// Waits until `done` returns true, at most for `timeout_ms` unless that is negative. Returns whether
// it is true.
template <typename Done>
bool wait_for(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
              int64_t timeout_ms, Done done) {
  if (timeout_ms >= 0) return changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), done);
  changed.wait(lock, done);
  return true;
}

// A copy of a task for the caller.
struct HandedTask {
  bool trains = false;
  int64_t step = -1;
  int64_t micro_batch = -1;  // or chunk of an evaluation
  int64_t epoch = 0;
  std::vector<int64_t> indices;  // of samples in the split
  bool same_weights = false;     // those of the task before
};

// Tasks that the caller will probably get, so that it can read their samples ahead. A queue with a
// limit; each task is told once. Not thread-safe.
class UpcomingTasks {
 public:
  static constexpr size_t kMaxTasks = 1024;  // that wait to be told; as many are known as told

  // Adds a task, unless it waits to be told, was told and has not begun, or the queue is full.
  void add(HandedTask task);
  // Records that a task begins: no announcement of it or of those before it is needed any more, and
  // it may be announced again.
  void begin(const HandedTask& task);
  // Returns the next task, or nothing.
  std::optional<HandedTask> take();

 private:
  using Key = std::pair<int64_t, int64_t>;  // step, micro-batch
  static Key key_of(const HandedTask& task) { return {task.step, task.micro_batch}; }
  std::deque<HandedTask>::iterator waiting(const Key& key);

  std::deque<HandedTask> waiting_;
  std::set<Key> told_;
};

class Handover {
 public:
  // ---- the trainer's thread ----
  // Sets how long the caller may work on a task, in seconds: `limit`, of which errors speak, and
  // `grace`, in which the caller can say more by giving up. A limit of 0 is none.
  void set_time_limit(double limit, double grace);
  void announce(HandedTask task);
  // Returns the mean loss of the micro-batch. Hands the task out before its weights have arrived, and
  // calls `needed`, if there is one, for each tensor. Then calls `ready` for each gradient that the
  // caller has set, then for each other tensor: its gradient is zero, its statistic remains as it is.
  // Throws Error(kFailed) if the caller gives up or does not end the task in time.
  float train(const TensorTable& table, std::span<const float> weights, const Samples& samples,
              std::span<float> gradients, const GradientReady& ready, const WeightsNeeded& needed);
  // Sets the sums of all heads over a chunk. Throws as `train`.
  void evaluate(const TensorTable& table, std::span<const float> weights, const Samples& samples,
                std::span<HeadSums> sums);
  // Keeps a copy of the weights of the job's end, for copy_arriving after the end.
  void keep_final(const TensorTable& table, std::span<const float> weights);
  // Takes the present group of the caller's worker; attempt 0: there is none.
  void set_group(const MeetingPlace& place);
  // Lets the caller say the learning rate, from this one on; see pp_set_lr.
  void set_job_rate(double lr);
  // Takes the progress of the job at the weights of the next task.
  void note_progress(const StepProgress& progress);
  // Returns the rate that held when the caller ended its first micro-batch of the latest step; nothing if the job
  // has the rates.
  std::optional<double> step_rate() const;
  // Returns the sums of the latest evaluation's chunk that the caller has named, by name.
  NamedSums named_sums() const;
  // Sets what train and evaluate call about every 20 ms while they wait for the caller. It may throw.
  void set_idle(std::function<void()> idle);
  // There will be no further task.
  void end();

  // ---- the caller's thread ----
  enum class Next { kTask, kEnd, kNothingYet, kRegroup };
  // Waits for the next task, at most for `timeout_ms` unless that is negative, and sets `task` to it,
  // or, at the end, to whether copy_arriving has no final weights (`same_weights`).
  // Returns kRegroup if the caller is not in the present group: it calls next_group then.
  // Throws Error(kUsage) if a task is open, and Error(kFailed) once the caller has given up.
  Next next(int64_t timeout_ms, HandedTask* task);
  // Waits for a group other than the last one that it has returned, as `next` does, and enters it.
  // Drops an open task that is void. Returns kTask for a group, kEnd after the last task, else
  // kNothingYet: `place` is then the last group, with attempt 0 if it has ended.
  Next next_group(int64_t timeout_ms, MeetingPlace* place);
  // The rest throw Error(kUsage) if no such task is open, or an argument does not fit the tensor.
  // Copies the weights of a tensor once they have arrived.
  void copy_weights(size_t tensor, std::span<float> to);
  // Copies the weights of all tensors, each once it has arrived, and waits for them, at most for
  // `timeout_ms` unless that is negative. Returns the number of tensors that are missing.
  // After the end it copies the final ones.
  //   to: of each tensor; null: it is not copied. Set to null when it is.
  size_t copy_arriving(int64_t timeout_ms, std::span<float*> to);
  // Returns the first tensor whose values differ from the weights that copy_arriving copied last, or
  // the number of tensors. Also between tasks.
  //   at: of each tensor; null: it is not compared. Throws Error(kUsage) if one was never copied.
  size_t find_changed(std::span<const float* const> at);
  // Copies a gradient.
  void set_gradient(size_t tensor, std::span<const float> from);
  // The same, but the trainer's thread copies it while the caller goes on. `from` may not change
  // before end_training has returned.
  void lend_gradient(size_t tensor, std::span<const float> from);
  // Waits until all gradients that were lent have been copied: the caller may change them.
  void await_lent();
  // Waits as await_lent.
  void end_training(float loss);
  // sums: of each head. Throws Error(kUsage) if their number is another.
  void end_evaluation(std::span<const HeadSums> sums, NamedSums named = {});
  // Throws Error(kUsage) if no chunk is open.
  void check_evaluates() const;
  bool holds_task() const;
  // Says the learning rate of the open task's step, and of later ones. Throws Error(kUsage) if it is none, or if the
  // job has the rates.
  void set_learning_rate(double rate);
  // Returns the rate that holds now. Call if the job has none.
  double learning_rate() const;
  // Returns the progress at the weights of the task, once they are all here.
  StepProgress progress() const;

  // ---- any thread ----
  // The trainer's thread throws Error(kFailed) with this text from its call, and from later ones.
  void give_up(const std::string& why);
  // Returns the next task that was announced, or nothing.
  std::optional<HandedTask> announced();

 private:
  enum class Stage {
    kNone,    // no task
    kPosted,  // the caller has not taken it yet
    kHeld,    // the caller works on it
    kDone,    // the caller has ended it
    kVoid,    // the call has thrown, the caller has not ended the task
  };
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  // A gradient that `train` has not passed on yet.
  struct Gradient {
    size_t tensor = 0;
    const float* lent = nullptr;  // null: it is in gradients_
  };

  // A tensor as copy_arriving has copied it last.
  struct CopiedTensor {
    size_t floats = 0;  // 0: nothing yet
    uint64_t sum = 0;
  };

  void post(Lock& lock, const TensorTable& table, std::span<const float> weights,
            const Samples& samples, bool trains);
  void await_weights(Lock& lock, const WeightsNeeded& needed);
  void await(Lock& lock, const std::function<bool()>& done);
  void wait_a_little(Lock& lock);
  void check_time() const;
  bool regroups() const { return place_.attempt != entered_; }
  void pass_gradients(Lock& lock, const GradientReady& ready);
  void fill_missing(size_t tensor);
  void close(Lock& lock);
  void unlocked(Lock& lock, const std::function<void()>& copy);
  size_t copy_final(std::span<float*> to) const;
  double rate_now() const;
  bool begin_gradient(size_t tensor, std::span<const float> from);
  void check_open(bool trains) const;
  const TensorInfo& checked(size_t tensor, size_t floats) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable copied_;  // copies_ or lent_ is 0
  // guarded by mutex_
  Stage stage_ = Stage::kNone;
  bool ended_ = false;
  std::optional<std::string> gave_up_;
  UpcomingTasks upcoming_;
  double limit_s_ = 0.0;  // 0: none
  std::chrono::duration<double> grace_{0.0};
  MeetingPlace place_;   // of the present group
  int64_t entered_ = 0;  // attempt of the group that the caller has entered
  HandedTask task_;
  Clock::time_point held_since_;
  const TensorTable* table_ = nullptr;
  std::span<const float> weights_;
  std::span<float> gradients_;
  size_t arrived_from_ = 0;  // the weights of this tensor and later ones have arrived
  std::vector<bool> given_;  // by tensor: it has a gradient
  std::vector<CopiedTensor> copied_weights_;  // by tensor
  int copies_ = 0;               // that the caller's thread makes from or to the task's memory
  std::deque<Gradient> passed_;  // in the order in which they came
  int lent_ = 0;                 // gradients that have not been copied
  float loss_ = 0.0F;
  std::span<HeadSums> sums_;  // of the evaluation that is open
  NamedSums named_;           // of the latest one
  StepProgress progress_;
  std::optional<double> job_rate_;  // lr, if the caller says rates
  std::optional<double> said_;      // by the caller last
  double step_rate_ = 0.0;          // see step_rate()
  int64_t rated_step_ = -1;         // to which it belongs, and the micro-batch
  int64_t rated_micro_batch_ = 0;
  TensorTable final_table_;
  std::vector<float> final_;  // weights of the job's end; empty: not known
  // the trainer's thread only
  std::function<void()> idle_;
  Clock::time_point idled_;  // when idle_ was called last
};

}  // namespace pushpull
