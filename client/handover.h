// Hands tasks from the trainer's thread to the caller's, and gradients back. One task at a time: the
// trainer's thread waits in `train` or `evaluate` until the caller has ended the task. A task is
// void once its call has thrown; the caller's further calls for it then change nothing.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/layout/samples.h"
#include "common/metrics/metric.h"
#include "models/model.h"

namespace pushpull {

// A copy of a task for the caller.
struct HandedTask {
  bool trains = false;
  int64_t step = -1;
  int64_t micro_batch = -1;      // or chunk of an evaluation
  std::vector<int64_t> indices;  // of samples in the split
};

class Handover {
 public:
  // ---- the trainer's thread ----
  // Returns the mean loss of the micro-batch. Calls `ready` for each gradient that the caller has
  // set, then for each other tensor, whose gradient is zero. Throws Error if the caller gives up.
  float train(const TensorTable& table, std::span<const float> weights, const Samples& samples,
              std::span<float> gradients, const GradientReady& ready);
  // Returns the sums over a chunk.
  HeadSums evaluate(const TensorTable& table, std::span<const float> weights,
                    const Samples& samples);
  // There will be no further task.
  void end();

  // ---- the caller's thread ----
  enum class Next { kTask, kEnd, kNothingYet };
  // Waits for the next task, at most for `timeout_ms` unless that is negative, and sets `task` to it.
  // Throws Error(kUsage) if a task is open.
  Next next(int64_t timeout_ms, HandedTask* task);
  // Throw Error(kUsage) if no such task is open, or an argument does not fit the tensor.
  void copy_weights(size_t tensor, std::span<float> to);
  void set_gradient(size_t tensor, std::span<const float> from);
  void end_training(float loss);
  void end_evaluation(const HeadSums& sums);
  // The trainer's thread throws Error(kFailed) with this text from its call, and from later ones.
  void give_up(const std::string& why);

 private:
  enum class Stage {
    kNone,    // no task
    kPosted,  // the caller has not taken it yet
    kHeld,    // the caller works on it
    kDone,    // the caller has ended it
    kVoid,    // the call has thrown, the caller has not ended the task
  };
  using Lock = std::unique_lock<std::mutex>;

  void post(Lock& lock, const TensorTable& table, std::span<const float> weights,
            const Samples& samples, bool trains);
  void pass_gradients(Lock& lock, const GradientReady& ready);
  void close();
  void check_open(bool trains) const;
  std::span<const float> part(std::span<const float> all, size_t tensor, size_t floats) const;

  std::mutex mutex_;
  std::condition_variable changed_;
  // guarded by mutex_
  Stage stage_ = Stage::kNone;
  bool ended_ = false;
  std::optional<std::string> gave_up_;
  HandedTask task_;
  const TensorTable* table_ = nullptr;
  std::span<const float> weights_;
  std::span<float> gradients_;
  std::vector<bool> given_;    // by tensor
  std::deque<size_t> passed_;  // tensors whose gradients `train` has not seen yet
  float loss_ = 0.0F;
  HeadSums sums_;
};

}  // namespace pushpull
