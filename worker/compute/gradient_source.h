// The gradients of a task's nodes, computed and summed where the model is: on the processor, whole or
// in stages or as a stage of a group (pipeline_source.h), on a device, or on several
// (device_team.h). Single-threaded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/hash_sum.h"
#include "common/layout/slice_map.h"
#include "datasets/dataset.h"
#include "datasets/loader.h"
#include "models/model.h"
#include "worker/compute/device_sum.h"
#include "worker/compute/gradient_sum.h"
#include "worker/member/time_split.h"
#include "worker/member/trace.h"

namespace pushpull {

struct Job;
class StageExchange;

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

// The micro-batches of a worker's tasks: reads them ahead, hashes and counts them, and checks their
// losses.
class MicroBatches {
 public:
  // Borrows `job` and `dataset`. over: returns true once no more work is needed.
  MicroBatches(const Job& job, const Dataset& dataset, std::function<bool()> over);

  // Sets the rank, which errors and `straggler` refer to; -1 if it is not known yet.
  void set_rank(int rank);
  // Counts micro-batches in `activity`, which is borrowed.
  void set_activity(Activity& activity) { activity_ = &activity; }

  bool over() const { return over_(); }
  Loader& loader() { return loader_; }
  // Returns a micro-batch, valid until the next call, and adds it to the hash.
  const MicroBatch& get(int64_t step, int64_t micro_batch);
  // The same without the hash.
  const MicroBatch& read(int64_t step, int64_t micro_batch);
  // Adds a micro-batch that was read by `loader()`.
  void add_hash(const HashSum& hash) { hash_ += hash; }
  HashSum take_hash() { return std::exchange(hash_, {}); }
  void count_computed(int64_t micro_batches);
  // Returns `loss`. Throws Error(kNotFinite) naming worker, step and micro-batch.
  float checked_loss(int64_t step, int64_t micro_batch, float loss) const;
  // Appends the losses of these micro-batches, which it checks.
  void add_checked(int64_t step, Range micro_batches, std::span<const float> all,
                   std::vector<float>& losses) const;
  // Parts of a message about a value that is not finite: worker and step, and what may help.
  std::string where(int64_t step) const;
  std::string advice() const;

  // Runs while a node is computed.
  Straggling& straggling() { return straggling_; }

 private:
  void sleep(double seconds) const;

  const Job& job_;
  Loader loader_;
  const std::function<bool()> over_;
  HashSum hash_;
  Straggling straggling_;
  int rank_ = -1;
  Activity* activity_ = nullptr;  // null if there is none
};

// A node of a task, to be computed.
struct NodeWork {
  int64_t step = 0;
  Range range;                                        // micro-batches
  int64_t first = 0;                                  // micro-batch of the task
  std::span<const float> weights;                     // flat; the same in all nodes of the task
  std::span<const std::vector<float>> stage_weights;  // by stage, if they differ; otherwise empty
  int64_t next_step = 0;                              // of `next`
  Range next;  // the node that probably follows; empty if unknown
  const GradientSum::SliceReady& ready;
  const WeightsNeeded& needed;  // may be empty

  bool is_first() const { return range.lo == first; }
};

class GradientSource {
 public:
  virtual ~GradientSource() = default;

  // Adds events to `trace`, which is borrowed. Call before the first node().
  virtual void set_trace(Trace& trace) = 0;
  // Computes a node and passes the sum of its gradients to `work.ready`, slice by slice in the order
  // in which backward finishes them. Appends the mean loss of each micro-batch. Returns false if the
  // work was over before the end. Throws Error(kNotFinite) for a loss, and as `ready` and `needed`
  // do.
  virtual bool node(const NodeWork& work, std::vector<float>& losses) = 0;
  // Forgets the inputs of nodes that will not be computed. Call after node() has thrown.
  virtual void abandon() {}
  // Returns the gradients that were replaced by zeros since the last call (on-bad-gradient = skip).
  virtual std::vector<wire::BadGradient> take_bad() { return {}; }

  // Returns the figures of the model's stages; empty if it is not divided.
  virtual std::vector<StageTotals> stages() const { return {}; }

  // ---- of the last node, until the next one ----
  // Returns the whole sum, which must be in host memory.
  virtual std::span<const float> sum() const = 0;
  // Returns false if a slice that was passed on contains NaN or infinity.
  virtual bool finite(int slice, const Payload& part) const = 0;
  // Returns that slice in host memory.
  virtual Payload on_host(const Payload& part) const { return part; }
};

// Returns the source for the devices of `model`, or for the processor. Borrows `job`, `model` and
// `batches`. memory: where gradients are written. exchange: with the other stages of a group, borrowed;
// null unless the model is divided among workers. Throws Error(kUsage) if the job asks for what the
// devices cannot do.
std::unique_ptr<GradientSource> make_gradient_source(const Job& job, Model& model,
                                                     const SliceMap& map, MicroBatches& batches,
                                                     PushedMemory memory,
                                                     StageExchange* exchange = nullptr);

}  // namespace pushpull
