// Computes gradients: reads micro-batches, runs the model forward and backward, sums along the
// fixed tree and rejects values that are not finite. Does no network I/O: trainers push the sums, a
// replay applies them. Single-threaded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/base/hash_sum.h"
#include "common/layout/slice_map.h"
#include "common/update/range_update.h"
#include "datasets/dataset.h"
#include "datasets/loader.h"
#include "models/model.h"
#include "worker/compute/device_sum.h"
#include "worker/compute/device_team.h"
#include "worker/compute/gradient_sum.h"
#include "worker/member/time_split.h"
#include "worker/member/trace.h"

namespace pushpull {

// Slows a worker down on purpose (`straggler`): after each piece of computing it waits until the
// piece has taken FACTOR times as long. It sleeps rather than spins, because it emulates a slower
// machine and must not take cores from other processes. Single-threaded.
class Straggling {
 public:
  // clock: in seconds, monotonic. sleep: sleeps for at most the given seconds.
  Straggling(std::function<double()> clock, std::function<void(double)> sleep);

  // 1 = no slowdown.
  void set_factor(double factor) { factor_ = factor; }

  // Starts or resumes the clock of computing.
  void resume();
  // Stops it and sleeps for the time owed.
  void lag();

 private:
  std::function<double()> clock_;
  std::function<void(double)> sleep_;
  double factor_ = 1.0;
  double resumed_s_ = 0.0;
  double owed_s_ = 0.0;  // negative after sleeping too long
};

// Hash of the samples that a run actually drew, which shows that two runs saw the same data:
// SHA-256 of each micro-batch's place and indices, added up in any order. Thread-safe.

// Returns the hash of one micro-batch. indices: of its samples in the training split, in order.
HashSum data_hash(int64_t step, int64_t micro_batch, std::span<const int64_t> indices);

struct Job;

class Compute {
 public:
  // Borrows all references.
  //   over: returns true once no more work is needed; called between micro-batches.
  //   memory: where gradients are written.
  Compute(const Job& job, const Dataset& dataset, Model& model, const SliceMap& map,
          std::function<bool()> over, PushedMemory memory = {});

  // Sets the rank, which the model, error messages and `straggler` refer to; -1 if it is not known
  // yet.
  void set_rank(int rank);
  // Adds events for each micro-batch and for copies of devices to `trace`, which is borrowed. Call
  // before the first node().
  void set_trace(Trace& trace);
  // Counts micro-batches in `activity`, which is borrowed. Call before the first node().
  void set_activity(Activity& activity) { activity_ = &activity; }

  // Begins a task: each call of node() computes the next of these nodes of `step`.
  //   weights: the flat vector. It must not change until the last node() has returned, because a
  //   device copies it only once.
  void begin(int64_t step, std::vector<Range> nodes, std::span<const float> weights);
  // Announces the nodes that probably come next: prefetches their data, and copies the first
  // micro-batch to the device while that computes the current task's last one. Call after begin().
  // A wrong guess costs only time.
  void hint(int64_t step, std::vector<Range> nodes);

  // Computes the next node and passes the sum of its gradients to `ready`, slice by slice in the
  // order in which backward finishes them.
  //   losses: the mean loss of each micro-batch is appended.
  //   needed: called for each tensor before forward reads it, while weights are still arriving; may
  //   be empty; may throw.
  // Returns false if the work was over before the end. Throws Error(kNotFinite), which names
  // worker, step and tensor. Call begin() again after either.
  bool node(const GradientSum::SliceReady& ready, std::vector<float>& losses,
            const WeightsNeeded& needed = {});

  // Gives the model the weights after the job's last step.
  void finish(std::span<const float> weights) { model_.keep_final(weights); }

  // Returns the gradients that were replaced by zeros (on-bad-gradient = skip) since the last call,
  // each with the index of its loss.
  std::vector<wire::BadGradient> take_bad() {
    return skipped_ ? skipped_->take_found() : std::vector<wire::BadGradient>();
  }
  // Returns the hash of the samples of all nodes since the last call.
  HashSum take_data_hash() { return std::exchange(data_hash_, {}); }

  // Returns the whole sum of the last node, which must be in host memory. Valid until the next
  // node().
  std::span<const float> sum() const { return team_ ? team_->sum() : gradient_->sum(); }
  // Returns the squared norm of the mean gradient, for clipping.
  //   sum: flat vector, summed over `micro_batches`.
  double squares(std::span<const float> sum, int64_t micro_batches) const;

 private:
  struct Work {
    int64_t step = -1;
    std::vector<Range> nodes;
  };
  // Arguments of node().
  struct Node {
    int64_t step = 0;
    Range range;
    bool is_first = false;  // first of the task's nodes
    const GradientSum::SliceReady& ready;
    WeightsNeeded needed;
  };
  // A micro-batch copied to a device ahead of its use.
  struct Ahead {
    int64_t step = -1;  // -1 if there is none
    int64_t micro_batch = -1;
    HashSum hash;
  };

  bool traced() const { return trace_ != nullptr && trace_->on(); }
  bool compute(const Node& node, std::vector<float>& losses);
  void stage(size_t device, int64_t step, int64_t micro_batch);
  void stage_ahead();
  void stage_ahead(size_t device, int64_t step, int64_t micro_batch);
  bool on_host(const Node& node, std::vector<float>& losses);
  bool on_device(const Node& node, std::vector<float>& losses);
  bool on_devices(const Node& node, std::vector<float>& losses);
  void add_losses(const Node& node, std::span<const float> all, std::vector<float>& losses) const;
  void sleep(double seconds) const;
  void count(int64_t micro_batches);
  float check_loss(int64_t step, int64_t micro_batch, float loss) const;
  void check_finite(int64_t step, int slice, const Payload& part) const;

  const Job& job_;
  Model& model_;
  SliceMap map_;
  RangeUpdate whole_;
  Loader loader_;
  const std::vector<DeviceStep*> devices_;  // of the model; empty if it computes on the CPU
  std::unique_ptr<GradientSum> gradient_;   // null if there are several devices
  std::unique_ptr<DeviceTeam> team_;        // set if there are several devices
  std::vector<Ahead> ahead_;                // by device
  Work work_;                               // given to begin()
  size_t next_ = 0;                         // index in work_.nodes
  std::span<const float> weights_;
  Work hinted_;
  std::function<bool()> over_;
  Straggling straggling_;
  HashSum data_hash_;
  std::optional<SkippedGradients> skipped_;  // on-bad-gradient = skip
  int rank_ = -1;
  Trace* trace_ = nullptr;
  Activity* activity_ = nullptr;               // null if there is none
  std::unique_ptr<DeviceTrace> device_trace_;  // set for a single traced device
};

}  // namespace pushpull
