// A model of a few thousand weights with a gradient that is a cheap pure function of (weights,
// step, micro-batch), and the plain loop in one process with which `sync` must agree bit by bit.
//
// The counting form is for async, buffered and ssp, in which bits depend on the order: micro-batch
// `m` of `step` has the number id = step * M + m, and its gradient is 1 in the elements i with i %
// 1024 == id, 0 elsewhere. With plain SGD at rate 1 an element is then -1/M times the number of
// times that its micro-batch was applied. Each slice holds each id, so that the weights themselves
// tell which micro-batches they contain.
//
// The toy has `job.stages` stages, each with tensors of its own. What a stage passes on depends on its weights,
// and its gradient on what it gets from the stages before and behind: a part of another micro-batch, step or
// attempt changes bits. In the counting form the parts are pure functions of stage, step and micro-batch.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/base/hash_sum.h"
#include "common/job/job.h"
#include "common/layout/fixed_tree.h"
#include "common/layout/metric.h"
#include "common/layout/tensor_table.h"
#include "common/net/flat_state.h"
#include "common/net/message.h"
#include "common/update/optimizer_options.h"
#include "datasets/sampler.h"
#include "ps/members/evaluations.h"

namespace pushpull {
struct UpdateContext;
}  // namespace pushpull

namespace pushpull::sim {

// Returns the optimizer's options for a tensor of the toy. The toy declares that its bias has no
// weight decay; with patterns in no-decay (see scenario.cpp) its weight has none instead. Under an
// external model the bias has a decay and the weight a learning rate of its own.
OptimizerOptions options_for(const OptimizerOptions& optimizer, const TensorInfo& tensor);

class Toy {
 public:
  static constexpr int64_t kTrainSamples = 1000;

  Toy(const Job& job, int64_t elements, bool counting);

  const TensorTable& table() const { return table_; }
  // Returns the weights that workers give to the run's start; empty unless the job's model is
  // external.
  const std::vector<float>& own_weights() const { return own_weights_; }
  void gradient(std::span<const float> weights, int64_t step, int64_t micro_batch,
                std::span<float> out) const;
  static float loss(int64_t step, int64_t micro_batch);

  // ---- stages ----
  // Passes between two stages: forward, and as its gradient back.
  static constexpr size_t kSignals = 5;
  using Signals = std::array<float, kSignals>;
  int stages() const { return static_cast<int>(tensors_read_.size()); }
  // Returns the tensors that belong to a stage, as a worker knows them that knows no others.
  TensorTable part_of(int stage) const;
  // Returns the tensors that each stage reads. The last one may read the first tensor, too.
  const std::vector<std::vector<size_t>>& tensors_read() const { return tensors_read_; }
  // Returns the elements of the tensors that a stage reads, and of those that belong to it.
  std::vector<Range> elements_read(int stage) const;
  Range elements_of(int stage) const;
  // A micro-batch in one stage.
  struct Place {
    int stage = 0;
    int64_t step = 0;
    int64_t micro_batch = 0;
  };
  // Returns what the stage passes on. The first one ignores its input, and the gradient of the last one's
  // output is that output.
  Signals forward(const Place& place, std::span<const float> weights, const Signals& input) const;
  // Writes the gradient of the stage. A tensor that a stage behind reads, too, has that stage's gradient before.
  // Returns the gradient of the input.
  Signals backward(const Place& place, std::span<const float> weights, const Signals& input,
                   const Signals& gradient, std::span<float> out) const;

  // Returns the hash of the samples that a worker draws for a micro-batch.
  HashSum data_hash(int64_t step, int64_t micro_batch) const;
  // Returns two heads whose counted targets differ from chunk to chunk.
  static std::vector<HeadInfo> heads();
  // Returns the sums of these heads.
  static std::array<HeadSums, 2> evaluate(std::span<const float> weights, int64_t chunk);
  // The same in pieces: of adjacent elements, from the first one on.
  struct Evaluated {
    uint64_t hash = 0;
    double loss = 0.0;
  };
  static Evaluated begin_evaluation(int64_t chunk) { return {static_cast<uint64_t>(chunk), 0.0}; }
  static void evaluate(Evaluated& so_far, std::span<const float> weights, int64_t chunk,
                       Range elements);
  static std::array<HeadSums, 2> sums_of(const Evaluated& all, int64_t chunk);

  // Counting form: checks that these elements of `weights` contain all micro-batches of steps below
  // `from`, some of those below `to`, none from there on, and none twice. Returns the error, or ""
  // if there is none.
  std::string check_counts(std::span<const float> weights, Range elements, int64_t from,
                           int64_t to) const;
  std::string check_counts(std::span<const float> weights, int64_t from, int64_t to) const {
    return check_counts(weights, {0, std::ssize(weights)}, from, to);
  }
  // Counting form: returns the number of shares (of `shares` per step) that the slice's elements
  // contain.
  int64_t count_shares(std::span<const float> slice, int64_t first_step, int shares) const;
  FlatState counted_state(int64_t step) const;

 private:
  void add(TensorInfo info, int stage);
  bool read_behind(size_t tensor, int stage) const;

  TensorTable table_;
  std::vector<std::vector<size_t>> tensors_read_;  // by stage
  std::vector<float> own_weights_;
  int64_t leaves_;
  bool counting_;
  mutable Sampler sampler_;
};

// Updates the averages, the last state vector, by the weights of one more update.
void average(const Toy& toy, const OptimizerOptions& optimizer, FlatState& state);

// Returns the factor of a tensor's learning rate in the next update; 1 unless the optimizer scales by
// tensor.
//   sum, weights, slots: of the whole vector.
double trust_ratio(const Toy& toy, const OptimizerOptions& optimizer, const TensorInfo& tensor,
                   const UpdateContext& context, const std::vector<float>& sum,
                   const std::vector<float>& weights, const std::vector<std::vector<float>>& slots);

// Training without servers and workers.
class Reference {
 public:
  Reference(const Job& job, const Toy& toy, int64_t test_samples);

  // Returns the state after `step` updates.
  const FlatState& at(int64_t step);
  Evaluation evaluation(int64_t step);

  // Parts for other references.
  // Returns the weights that workers receive.
  std::vector<float> pulled(std::vector<float> weights) const;
  FlatState initial(size_t state_vectors) const;
  std::vector<float> gradient_sum(const std::vector<float>& weights, int64_t step,
                                  Range node) const;
  double clip_of(const std::vector<float>& sum, double divisor) const;
  Evaluation evaluation_of(const FlatState& state) const;

 private:
  void update(FlatState& state) const;

  const Job& job_;
  const Toy& toy_;
  int64_t test_samples_;
  std::vector<FlatState> states_;
};

}  // namespace pushpull::sim
