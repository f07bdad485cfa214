// Gradients of a model divided into stages: each stage computes on a thread of its own, and they work on
// different micro-batches at the same time. Sums have the bits of HostSource: each stage adds the
// gradients of its tensors along the same tree, into the same buffers.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "common/base/buffer_pool.h"
#include "models/model.h"
#include "models/pipeline.h"
#include "worker/compute/gradient_source.h"

namespace pushpull {

class PipelineSource final : public GradientSource {
 public:
  // Borrows `pipeline`, `table` and `batches`. memory: where gradients are written.
  PipelineSource(Pipeline& pipeline, const TensorTable& table, const SliceMap& map,
                 MicroBatches& batches, FloatAllocator memory);
  // Ends the threads.
  ~PipelineSource() override;
  PipelineSource(const PipelineSource&) = delete;
  PipelineSource& operator=(const PipelineSource&) = delete;

  void set_trace(Trace& trace) override;
  bool node(const NodeWork& work, std::vector<float>& losses) override;
  std::span<const float> sum() const override {
    return {sum_.get(), static_cast<size_t>(progress_.map().total())};
  }
  bool finite(int slice, const Payload& part) const override;
  std::vector<StageTotals> stages() const override;

 private:
  using Buffer = std::shared_ptr<float[]>;
  // A micro-batch of the node.
  struct Leaf {
    std::unique_ptr<PipelineStage::Batch> batch;
    Buffer gradient;   // from its first write until all stages have added it
    size_t added = 0;  // stages that have
    float loss = 0.0F;
  };
  struct TracedPass {
    StageAction action;
    double begin_s = 0.0;
    double end_s = 0.0;
  };
  struct Stage {
    PipelineStage* model = nullptr;
    std::vector<size_t> tensors;
    std::deque<Buffer> outputs;            // of forward, for the stage behind; guarded
    std::deque<Buffer> input_gradients;    // of backward, for the stage before; guarded
    std::vector<Buffer> stack;             // of its sums, see GradientSum; its thread's
    std::vector<TracedPass> passes;        // of the node, if traced; its thread's
    StageTotals figures;                   // its thread's while a node runs
    std::unique_ptr<BufferPool> boundary;  // null in the last stage
    std::thread thread;
  };
  // Thrown on a stage's thread when the node is given up.
  struct GivenUp {};

  // ---- the trainer's thread ----
  void begin(const NodeWork& work);
  void publish_samples(const NodeWork& work);
  void publish_weights(const NodeWork& work);
  // Passes on slices until all stages are done. Returns false if the work was over before.
  bool pass_on(const NodeWork& work);
  // Waits until no stage works on the node.
  void settle(bool give_up);
  void add_traces(const NodeWork& work);

  // ---- the threads of stages ----
  void loop(size_t stage);
  void run(size_t stage);
  void forward(size_t stage, int64_t micro_batch);
  void backward(size_t stage, int64_t micro_batch);
  void tensor_ready(Stage& stage, size_t tensor, int64_t micro_batch);
  void end_leaf(Stage& stage, int64_t micro_batch);
  PipelineStage::Pass pass(size_t stage, int64_t micro_batch) const;
  // Waits until `here` returns true, with the mutex held. Throws GivenUp.
  template <class Here>
  void await(std::unique_lock<std::mutex>& lock, Here here);

  MicroBatches& batches_;
  SliceProgress progress_;
  BufferPool pool_;
  const size_t tensors_;
  bool forward_writes_ = false;  // gradients, in some stage
  std::vector<Stage> stages_;
  std::vector<int> merges_;  // by leaf
  Buffer sum_;
  Trace* trace_ = nullptr;  // null unless traced

  std::mutex mutex_;
  std::condition_variable changed_;  // anything below, which is guarded by mutex_
  int64_t nodes_ = 0;                // begun so far
  size_t working_ = 0;               // stages that work on the node
  bool given_up_ = false;
  bool ends_ = false;
  std::exception_ptr error_;  // of the first stage that failed
  const NodeWork* work_ = nullptr;
  std::vector<Leaf> leaves_;
  int64_t samples_here_ = 0;  // micro-batches that are published
  size_t weights_here_ = 0;   // tensors whose weights have arrived
  std::deque<size_t> ready_;  // tensors that are final, not passed on yet
};

}  // namespace pushpull
