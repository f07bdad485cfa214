// Evaluates a model on the test split, each sample exactly once for any number of workers. The
// split is cut into fixed chunks of job.micro_batch samples, the last one padded; a chunk's result
// does not depend on the worker. Counts add up in any order; the caller adds losses in chunk order.
// Not thread-safe: use one object per model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "datasets/dataset.h"
#include "models/model.h"
#include "worker/compute/stage_exchange.h"
#include "worker/member/time_split.h"
#include "worker/member/trace.h"

namespace pushpull {

class Evaluator {
 public:
  // Borrows `dataset` and `model`.
  Evaluator(const Job& job, const Dataset& dataset, Model& model);

  // Chunks 0 .. chunks() - 1 cover the test split.
  int64_t chunks() const;
  // Returns the number of samples in the chunk: job.micro_batch, or fewer in the last one.
  int64_t samples(int64_t chunk) const;

  // Announces a chunk that `run` will probably get to a data set that reads by itself.
  void announce(int64_t chunk);
  // Returns the sums of the model's heads over the chunk, valid until the next call.
  //   weights: model.table().total floats.
  //   same_weights: they are those of the model's call before.
  std::span<const HeadSums> run(std::span<const float> weights, int64_t chunk,
                                bool same_weights = false);
  // Returns the sums that the model's program has named in the latest `run`.
  NamedSums named_sums() const { return model_.named_sums(); }
  // Returns the model if a group of workers divides it, or null. It has `run_stage` in place of `run`.
  GroupStage* group() const { return model_.group_stage(); }
  // Returns true if this worker has the last stage, or the whole model.
  bool is_last_stage() const;
  // The same of the group's stage, see PipelineStage::evaluate. Returns nothing but in the last stage.
  std::span<const HeadSums> run_stage(std::span<const float> weights, int64_t chunk,
                                      const float* input, float* output, bool same_weights = false);

 private:
  void find_indices(int64_t chunk);
  // Reads the chunk. Valid until the next call.
  Samples read(int64_t chunk, bool same_weights);

  const Dataset& dataset_;
  Model& model_;
  const int64_t chunk_size_;
  std::vector<int64_t> indices_;
  const BatchLayout layout_;
  std::vector<float> block_;
  std::vector<HeadSums> sums_;
};

// A worker's share of an evaluation: evaluates chunks of the test split and fills in the message
// that reports them. Used by every trainer, on its thread.
class EvaluationShare {
 public:
  // incarnation: of this worker. over: returns true once the job is over; called before each chunk.
  // activity: counts the chunks. trace: gets an event per chunk, unless null. exchange: with the other
  // stages; null unless a group of workers divides the model. All are borrowed.
  EvaluationShare(Evaluator evaluator, uint64_t incarnation, std::function<bool()> over,
                  Activity& activity, Trace* trace = nullptr, StageExchange* exchange = nullptr);

  // Returns the number of chunks of the whole test split.
  int64_t chunks() const { return evaluator_.chunks(); }
  // Evaluates the weights of barrier `step` on these chunks. Returns nothing if the job ended
  // first, and no chunks if a stage behind this one has the results. Also throws as
  // StageExchange::receive does.
  std::optional<wire::EvalResult> run(int64_t step, Range chunks, std::span<const float> weights);
  // Tells the other stages of the group that this one cannot evaluate these chunks, because the weights are gone, so
  // that none of them waits for it. Returns no chunks.
  wire::EvalResult skip(int64_t step, Range chunks);

 private:
  // Returns true if the workers' programs pass activations, and not `exchange`.
  bool programs_pass() const;
  // Tells all other stages whether this one evaluates. Returns whether all do: a program whose neighbour
  // does not would wait for it.
  bool all_evaluate(int64_t step, Range chunks, bool evaluates);
  // Tells the stage behind whether this one evaluates. Nothing in the last stage.
  void tell(int64_t step, Range chunks, bool evaluates);
  // Returns whether the stages before evaluate.
  bool stages_before_evaluate(int64_t step, Range chunks);
  void send_taken(int64_t step, int64_t chunk, Range chunks);
  // What the stage before has computed of a chunk; empty in the first stage.
  Payload input_of(int64_t step, int64_t chunk, Range chunks);
  // Waits until the stage behind may get a chunk. Returns where it is computed, or null in the last
  // stage.
  std::shared_ptr<float[]> output_of(int64_t step, int64_t chunk, Range chunks);

  Evaluator evaluator_;
  const uint64_t incarnation_;
  const std::function<bool()> over_;
  Activity& activity_;
  Trace* const trace_;
  StageExchange* const exchange_;
  std::optional<BufferPool> outputs_;  // of the stage
};

}  // namespace pushpull
