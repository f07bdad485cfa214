// Gradients of a model divided into stages: each stage computes on a thread of its own, and they work on
// different micro-batches at the same time. Sums have the bits of HostSource: each stage adds the
// gradients of its tensors along the same tree, into the same buffers.
//
// The stages are those of the whole model or, in a worker of a group, the local ones of the stage that it computes. The
// trainer's thread then passes parts between them and the other workers. A single stage of such a worker needs no
// thread: it computes on the trainer's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/buffer_pool.h"
#include "models/model.h"
#include "models/pipeline.h"
#include "worker/compute/gradient_source.h"
#include "worker/compute/stage_exchange.h"
#include "worker/compute/stage_parts.h"

namespace pushpull {

class PipelineSource final : public GradientSource {
 public:
  // Computes the whole model. Borrows all references but `map`. memory: where gradients are written and sent from.
  PipelineSource(Pipeline& pipeline, const TensorTable& table, const SliceMap& map,
                 MicroBatches& batches, FloatAllocator memory);
  // Computes the stage that the group has at each node. memory: where sums are sent from; it holds what the
  // stage owns.
  PipelineSource(GroupStage& group, const TensorTable& table, const SliceMap& map,
                 MicroBatches& batches, StageExchange& exchange, FloatAllocator memory);
  // Ends the threads.
  ~PipelineSource() override;
  PipelineSource(const PipelineSource&) = delete;
  PipelineSource& operator=(const PipelineSource&) = delete;

  void set_trace(Trace& trace) override;
  // In a group, only the last stage knows losses and counts samples in the hash. Also throws as StageExchange.
  bool node(const NodeWork& work, std::vector<float>& losses) override;
  void abandon() override { clear(); }
  // Returns nothing if only the worker's program knows the operations.
  std::vector<StageTotals> stages() const override;
  // In a group, only the elements that the stage owns.
  std::span<const float> sum() const override {
    return {sum_.get(), static_cast<size_t>(map_.total())};
  }
  bool finite(int slice, const Payload& part) const override;

 private:
  using Buffer = std::shared_ptr<float[]>;
  using Part = StageExchange::Part;
  using Kind = wire::StagePart;
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
    std::vector<size_t> places;          // of its tensors in the sum
    std::shared_ptr<BufferPool> before;  // of its input and their gradients; null: there is none
    std::shared_ptr<BufferPool> behind;  // of its output, as `before`
    std::deque<Payload> inputs;          // of forward; guarded
    std::deque<Payload> gradients;       // of the output, for backward; guarded
    // One of the two, if it waits for that; guarded.
    const std::deque<Payload>* waits_for = nullptr;
    bool works = false;              // on the node; guarded
    std::vector<Buffer> stack;       // of its sums, see GradientSum; its thread's
    std::vector<TracedPass> passes;  // of the node, if traced; its thread's
    StageTotals figures;             // its thread's while a node runs
    std::thread thread;
  };
  // Gradients that are returned, and the memory that they are sent from.
  struct Return {
    StageParts::Returned part;
    BufferPool pool;
  };
  // A part that comes next from a stage behind, and its size.
  struct Next {
    Part part;
    size_t floats = 0;
    const StageParts::Returned* returned = nullptr;  // null: the gradient of the output
  };
  // Thrown in a stage when the node is given up.
  struct GivenUp {};

  // ---- preparation; on the trainer's thread, between nodes ----
  void set_stages(const std::vector<PipelineStage*>& models);
  // Prepares for the group's stage, if it has another one than before.
  void follow();
  void name_rows();
  bool is_last_worker() const { return group_ == nullptr || stage_ + 1 == group_->stages(); }
  // A single stage of a group, on the trainer's thread.
  bool is_alone() const { return exchange_ != nullptr && stages_.size() == 1; }

  // ---- the trainer's thread ----
  void begin(const NodeWork& work);
  void clear();
  void read_sample(int64_t micro_batch);
  void publish_samples();
  void publish_weights();
  // Computes the stage that is alone. Returns false if the work was over before.
  bool compute_alone();
  // Passes on slices and parts until all stages are done. Returns false if the work was over before.
  bool attend();
  void pass_on_slices();
  void give(Range slices);
  // Returns a slice of the sum where it is sent from.
  Payload sent(int slice);
  // Takes parts that have arrived to the stages, and sends what these have computed. Nothing without a group.
  void exchange_parts();
  // Return the part that comes next, and nothing once all have come.
  std::optional<Part> next_input() const;
  std::optional<Next> next_gradient() const;
  void take_gradient(const Next& next, Payload part);
  Payload receive(const Part& from, size_t floats);
  void wait_for_parts(std::unique_lock<std::mutex>& lock);
  // Returns whether a stage computes, with the mutex held.
  bool computes() const;
  // Waits until no stage works on the node.
  void settle(bool give_up);
  void add_traces(double begin_s, double end_s);

  // ---- the threads of stages ----
  void loop(size_t stage);
  void run(size_t stage);
  void forward(size_t stage, int64_t micro_batch);
  void backward(size_t stage, int64_t micro_batch);
  void send_back(int64_t micro_batch, const float* gradient);
  void tensor_ready(Stage& stage, size_t place, int64_t micro_batch);
  void end_leaf(Stage& stage, int64_t micro_batch);
  PipelineStage::Pass pass(size_t stage, int64_t micro_batch) const;
  // Returns the gradient of a micro-batch, with the mutex held.
  const Buffer& gradient_of(int64_t micro_batch);
  // Passes on what a stage has computed, to its neighbour here or in the group.
  void pass_output(size_t stage, int64_t micro_batch, Payload output);
  void pass_gradient(size_t stage, int64_t micro_batch, Payload gradient);
  void post(const Part& to, Payload floats);
  // Wakes all threads, with the mutex held or not.
  void changed();
  // Waits until `here` returns true, with the mutex held. Throws GivenUp.
  template <class Here>
  void await(std::unique_lock<std::mutex>& lock, Here here);
  Payload await(std::unique_lock<std::mutex>& lock, Stage& stage, std::deque<Payload>& from);

  GroupStage* const group_;        // null: the stages are the whole model
  StageExchange* const exchange_;  // as group_
  const TensorTable& table_;
  const SliceMap map_;
  MicroBatches& batches_;
  const FloatAllocator memory_;
  // Each buffer holds the gradients of the whole model. A worker of a group never touches the pages of other stages.
  BufferPool pool_;
  Trace* trace_ = nullptr;  // null unless traced

  // ---- of the stages ----
  std::vector<Stage> stages_;
  bool forward_writes_ = false;  // gradients, in some stage
  std::vector<size_t> read_;     // tensors, ascending
  std::vector<std::optional<size_t>>
      places_;  // of each tensor in the sum; none: another worker owns it
  std::optional<SliceProgress> progress_;  // of the places
  // In a group:
  int stage_ = -1;
  int first_local_ = -1;
  StageParts parts_;
  std::optional<size_t> behind_;    // place of the owned elements of tensors of stages behind
  std::optional<BufferPool> sent_;  // of the owned elements; none if there are none
  std::vector<Return> returns_;

  // ---- of the node ----
  std::vector<int> merges_;  // by leaf
  Buffer sum_;
  Buffer sum_sent_;        // of sent_
  int64_t inputs_ = 0;     // that have come from the worker before
  int64_t gradients_ = 0;  // that have come from the worker behind
  size_t gathered_ = 0;    // parts that have been returned for the next one
  int64_t gathered_bytes_ = 0;
  double aside_s_ = 0.0;  // seconds in which a stage that is alone did not compute

  std::mutex mutex_;
  std::condition_variable changed_;  // anything below, which is guarded by mutex_
  int64_t nodes_ = 0;                // begun so far
  size_t working_ = 0;               // stages that work on the node
  bool given_up_ = false;
  bool ends_ = false;
  std::exception_ptr error_;  // of the first stage that failed
  const NodeWork* work_ = nullptr;
  std::vector<Leaf> leaves_;
  int64_t samples_here_ = 0;                       // micro-batches that are published
  size_t weights_here_ = 0;                        // tensors whose weights have arrived
  std::deque<size_t> ready_;                       // places that are final, not passed on yet
  std::deque<std::pair<Part, Payload>> outgoing_;  // not sent yet
};

}  // namespace pushpull
