// A row of layers under softmax cross-entropy, on memory of its backend: what it enqueues takes
// effect in the backend's order, and it waits for nothing. Under models' two faces: the one for the
// host (sequential.h) and the one that overlaps (device_step.h). One thread at a time.
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

// Layers in the making.
struct LayerRow {
  ops::Backend& backend;
  TensorTable& table;
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<size_t> tensors_end;  // of each layer: one past its last tensor in the table

  // First layer first, each after it has added its tensors; the last one yields the logits
  // [samples, classes].
  void append(std::unique_ptr<Layer> layer);
};

using LayerBuilder = std::function<void(LayerRow& row)>;

struct NetworkShape {
  int64_t samples = 0;        // of a micro-batch
  int64_t sample_floats = 0;  // C * H * W
  int64_t classes = 0;
};

class Network {
 public:
  // build: called again by `choose`.
  Network(std::unique_ptr<ops::Backend> backend, const NetworkShape& shape, LayerBuilder build);

  const NetworkShape& shape() const { return shape_; }
  const TensorTable& table() const { return table_; }
  ops::Backend& backend() const { return *backend_; }
  size_t image_floats() const;  // of a micro-batch

  // Forward and backward of a micro-batch. weights, gradients: as Model::train, in memory of the
  // backend as all else.
  struct Batch {
    std::span<const float> weights;
    const float* images = nullptr;
    const int32_t* labels = nullptr;
    std::span<float> gradients;
  };
  // Called when what they name is enqueued (on the cpu: done); `needed` before. Those but `ready`
  // may be empty.
  struct Hooks {
    const GradientReady& ready;
    const WeightsNeeded& needed;
    const std::function<void()>& forward_done;
  };
  void train(const Batch& batch, const Hooks& hooks);
  // Losses and predictions of the first `valid` samples.
  void evaluate(std::span<const float> weights, const float* images, const int32_t* labels,
                int64_t valid);

  // Of the latest call, for each sample.
  const float* losses() const { return losses_.data(); }
  const int32_t* predictions() const;

  // PP_ASSERT on labels in host memory.
  void check_labels(std::span<const int32_t> labels) const;

  // Makes all plans anew with these algorithms (Model::choose).
  void choose(const std::string& choices);

 private:
  void plan();

  std::unique_ptr<ops::Backend> backend_;  // outlives what follows
  NetworkShape shape_;
  LayerBuilder build_;
  TensorTable table_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<size_t> tensors_end_;
  std::unique_ptr<ops::Elements> input_;
  std::unique_ptr<ops::CrossEntropy> cross_entropy_;
  std::vector<ops::Buffer> outputs_;  // of each layer
  ops::Buffer gradient_;              // of the current layer's output and input, in turns
  ops::Buffer next_gradient_;
  ops::Buffer losses_;       // of each sample
  ops::Buffer predictions_;  // of each sample, int32
};

// Of losses in host memory, in their order: the mean loss of a micro-batch.
float mean_loss(std::span<const float> losses);

// torch: Flatten, then Linear and ReLU per width in `hidden`, then Linear. Tensors layers.I.weight,
// layers.I.bias.
LayerBuilder mlp_layers(const Job& job, const InputShape& input, int64_t classes);

// The small MNIST network of the PyTorch courses at CSC: twice 5x5 convolution (16, 32 channels),
// BatchNorm, ReLU, 2x2 max pooling; then one Linear. Tensors layer1.0 and layer2.0 (convolution),
// layer1.1 and layer2.1 (BatchNorm), fc. Throws Error(kUsage) for an image that is too small.
LayerBuilder convnet_layers(const Job& job, const InputShape& input, int64_t classes);

}  // namespace pushpull
