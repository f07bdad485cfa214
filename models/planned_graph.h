// A graph planned on a backend: its operations, and one arena for all that a micro-batch needs. Its
// calls enqueue work in the backend's order and wait for nothing; they allocate nothing. Both
// interfaces of a model build on it: the blocking one (models/graph_model.h) and the overlapping one
// (models/device_step.h). Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/layout/fields.h"
#include "common/layout/metric.h"
#include "models/graph.h"
#include "models/memory_plan.h"
#include "models/ops/operation.h"

namespace pushpull {

class PlannedGraph {
 public:
  // slots: micro-batches that may be between forward and backward at a time.
  // Throws Error(kUsage) for an operation that the backend has no kernel for, Error(kFailed |
  // kDevice) if memory is short.
  PlannedGraph(std::unique_ptr<ops::Backend> backend, Graph graph, size_t slots = 1);

  const Graph& graph() const { return graph_; }
  const TensorTable& table() const { return graph_.table; }
  const BatchLayout& layout() const { return layout_; }
  ops::Backend& backend() const { return *backend_; }
  size_t slots() const { return slots_; }
  size_t arena_bytes() const { return slots_ * memory_.plan.bytes; }
  const MemoryPlan& memory_plan() const { return memory_.plan; }

  // A micro-batch; all in memory of the backend.
  struct Batch {
    std::span<const float> weights;
    const float* block = nullptr;    // layout().words() words
    const uint64_t* keys = nullptr;  // random_nodes() keys; null in an evaluation
    const float* scales = nullptr;   // of the heads' gradients; null in an evaluation
    // Written as by Model::train. Forward writes only those of statistics, and may get none without.
    std::span<float> gradients = {};
    size_t slot = 0;
  };
  using TensorHook = std::function<void(size_t tensor)>;
  // ready: called when the work that writes a gradient last is enqueued (on the CPU: done), once for
  //   each tensor.
  // needed: called before a tensor is read, in rising order but for those of stages before; may be
  //   empty.
  void train(const Batch& batch, const TensorHook& ready, const TensorHook& needed);
  // The two halves of `train`. Between them other micro-batches may run in other slots.
  void forward(const Batch& batch, const TensorHook& needed);
  void backward(const Batch& batch, const TensorHook& ready);
  // Part of forward: nodes [begin, end), and after the last node the heads.
  void forward(const Batch& batch, size_t begin, size_t end);
  // Returns an upper bound of the absolute values of a tensor's gradient in the latest backward,
  // once it is ready; infinity or NaN if there is none.
  double gradient_bound(size_t tensor) const { return bounds_.at(tensor); }
  // Computes losses and predictions of the first `valid` samples in slot 0.
  void evaluate(std::span<const float> weights, const float* block, int64_t valid);

  // ---- a stage of a pipeline (models/stages.h) ----
  // Where the value of the stage before is written before `forward` or `evaluate`, and the gradient
  // of the stage behind before `backward`; what these stages get after `forward` and `backward`. In
  // memory of the backend.
  void* input(size_t slot = 0) const { return at(memory_.values[input_value()], slot); }
  const void* output(size_t slot = 0) const { return at(memory_.values[output_value()], slot); }
  void* output_gradient(size_t slot) const { return at(memory_.gradients[output_value()], slot); }
  const void* input_gradient(size_t slot) const {
    return at(memory_.gradients[input_value()], slot);
  }
  // Sizes of these values and of their gradients; 0 if there is none.
  size_t input_bytes() const { return bytes_of(graph_.edges.input); }
  size_t output_bytes() const { return bytes_of(graph_.edges.output); }

  // Returns the number of operations that need a key.
  size_t random_nodes() const { return random_nodes_; }
  // Results of the latest call in a slot, see batch_results.h.
  const float* losses(size_t slot = 0) const;
  const int32_t* predictions(size_t slot = 0) const;
  // Returns the scores of the first head after `evaluate`; empty on a device and in bf16.
  std::span<const float> scores() const;
  size_t result_words() const { return memory_.result_words; }

  // Plans again with these algorithms (Model::choose).
  void choose(const std::string& choices);

 private:
  // Sum of a gradient and another part of it.
  struct Sum {
    std::unique_ptr<ops::Operation> op;
    size_t input = 0;
  };
  struct Node {
    std::unique_ptr<ops::Operation> op;
    ops::Needs needs = {};
    std::vector<Sum> sums = {};
    std::vector<Sum> param_sums = {};
    std::vector<size_t> ready_early =
        {};                          // tensors whose gradients are final after backward_weights
    std::vector<size_t> ready = {};  // after backward_data
    size_t key = 0;                  // index of its key, if it is random
  };

  void plan();
  void plan_sums();
  void plan_ready();
  void* at(int32_t region, size_t slot) const;
  size_t input_value() const { return static_cast<size_t>(graph_.edges.input); }
  size_t output_value() const { return static_cast<size_t>(graph_.edges.output); }
  size_t bytes_of(int32_t value) const;
  const void* value(int32_t value, const Batch& batch) const;
  ops::Run bind(size_t node, const Batch& batch) const;
  ops::Run bind_head(size_t head, const Batch& batch) const;
  size_t view_of(int32_t value, size_t slot) const;
  void forward_node(size_t node, const Batch& batch, bool training);
  void forward_heads(const Batch& batch);
  void backward_head(size_t head, const Batch& batch);
  void backward_node(size_t node, const Batch& batch, const TensorHook& ready);
  void add_to(const Sum& sum, void* total, const void* part) const;
  void add_bounds(size_t node, const ops::Run& run);

  std::unique_ptr<ops::Backend> backend_;  // outlives the members below
  Graph graph_;
  BatchLayout layout_;
  size_t slots_;
  GraphMemory memory_;
  std::vector<Node> nodes_;
  std::vector<Node> heads_;
  size_t random_nodes_ = 0;
  size_t first_tensor_ = 0;         // that no stage before reads; all: there is none
  std::vector<const void*> views_;  // of each value that is a view, slot by slot
  std::vector<double> bounds_;      // of each tensor's gradient
  ops::Buffer arena_;
};

}  // namespace pushpull
