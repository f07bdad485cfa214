// A sequence of layers under softmax cross-entropy, in memory of its backend. Its calls enqueue
// work in the backend's order and wait for nothing. Both interfaces of a model build on it: the
// blocking one (sequential.h) and the overlapping one (device_step.h). Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/layout/tensor_table.h"
#include "models/layers.h"
#include "models/model.h"
#include "models/ops/ops.h"

namespace pushpull {

struct InputShape;
struct Job;

// The layers of a network under construction.
struct LayerRow {
  ops::Backend& backend;
  TensorTable& table;
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<size_t> tensors_end;  // per layer: one past its last tensor in the table

  // Appends a layer that has added its tensors to the table, in forward order. The last layer
  // yields the logits [samples, classes].
  void append(std::unique_ptr<Layer> layer);
};

using LayerBuilder = std::function<void(LayerRow& row)>;

struct NetworkShape {
  int64_t samples = 0;  // per micro-batch
  FieldTable fields;    // of the dataset
  size_t pixels = 0;    // field of the images
  size_t label = 0;     // field of the labels
};

class Network {
 public:
  // build: creates the layers; `choose` calls it again.
  Network(std::unique_ptr<ops::Backend> backend, const NetworkShape& shape, LayerBuilder build);

  const NetworkShape& shape() const { return shape_; }
  const TensorTable& table() const { return table_; }
  ops::Backend& backend() const { return *backend_; }
  const BatchLayout& layout() const { return layout_; }

  // Enqueues forward and backward of a micro-batch.
  //   weights, gradients: as for Model::train, but in memory of the backend.
  struct Batch {
    std::span<const float> weights;
    const float* block = nullptr;  // layout().words() words
    std::span<float> gradients;
  };
  // Called when the work is enqueued (on the CPU: done); `needed` is called before it. All but
  // `ready` may be empty.
  struct Hooks {
    const GradientReady& ready;
    const WeightsNeeded& needed;
    const std::function<void()>& forward_done;
  };
  void train(const Batch& batch, const Hooks& hooks);
  // Computes losses and predictions of the first `valid` samples.
  void evaluate(std::span<const float> weights, const float* block, int64_t valid);

  // Results of the latest call, per sample.
  const float* losses() const { return losses_.data(); }
  const int32_t* predictions() const;

  // Returns the labels in a block.
  const int32_t* labels(const float* block) const;

  // Checks a micro-batch in host memory: the size of its block, and the labels of the first `valid`
  // samples. A mistake is a programming error (PP_ASSERT).
  void check(const Samples& samples, int64_t valid) const;

  // Rebuilds all plans with these algorithms (Model::choose).
  void choose(const std::string& choices);

 private:
  void plan();
  int64_t classes() const { return shape_.fields.fields[shape_.label].limit; }
  const float* images(const float* block) const { return block + layout_.offset(shape_.pixels); }

  std::unique_ptr<ops::Backend> backend_;  // outlives the members below
  NetworkShape shape_;
  BatchLayout layout_;
  LayerBuilder build_;
  TensorTable table_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<size_t> tensors_end_;
  std::unique_ptr<ops::Elements> input_;
  std::unique_ptr<ops::CrossEntropy> cross_entropy_;
  std::vector<ops::Buffer> outputs_;  // one per layer
  ops::Buffer gradient_;              // of the current layer's output and input, alternately
  ops::Buffer next_gradient_;
  ops::Buffer losses_;       // one per sample
  ops::Buffer predictions_;  // one per sample, int32
};

// Returns the mean loss of a micro-batch: losses in host memory, summed in order.
float mean_loss(std::span<const float> losses);

// Flatten as in torch, then Linear and ReLU for each width in `hidden`, then Linear. Tensors
// layers.I.weight and layers.I.bias.
LayerBuilder mlp_layers(const Job& job, const InputShape& input, int64_t classes);

// The small MNIST network of the PyTorch courses at CSC: two blocks of 5x5 convolution (16, 32
// channels), BatchNorm, ReLU and 2x2 max pooling, then one Linear. Tensors layer1.0 and layer2.0
// (convolution), layer1.1 and layer2.1 (BatchNorm), fc. Throws Error(kUsage) for an image that is
// too small.
LayerBuilder convnet_layers(const Job& job, const InputShape& input, int64_t classes);

}  // namespace pushpull
