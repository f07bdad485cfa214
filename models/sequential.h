// A model that is a row of layers under softmax cross-entropy. One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/layers.h"
#include "models/model.h"
#include "models/ops/ops.h"

namespace pushpull {

class Sequential : public Model {
 public:
  float train(std::span<const float> weights, const float* images, const int32_t* labels,
              std::span<float> gradients, const GradientReady& ready,
              const WeightsNeeded& needed = {}) final;
  EvalSums evaluate(std::span<const float> weights, const float* images, const int32_t* labels,
                    int64_t valid) final;
  std::string numerics() const final { return backend_->numerics(); }

 protected:
  Sequential(std::unique_ptr<ops::Backend> backend, int64_t samples, int64_t classes);

  // While building: first layer first, each after it has added its tensors; the last one yields the
  // logits [samples, classes].
  void append(std::unique_ptr<Layer> layer);
  // After the last append: plans what is left, allocates.
  void finish();

  ops::Backend& backend() { return *backend_; }
  int64_t samples() const { return samples_; }

 private:
  float mean_loss() const;

  std::unique_ptr<ops::Backend> backend_;  // outlives what follows
  int64_t samples_;
  int64_t classes_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<size_t> tensors_end_;  // of each layer: one past its last tensor in the table
  std::unique_ptr<ops::CrossEntropy> cross_entropy_;
  std::vector<ops::Buffer> outputs_;  // of each layer
  ops::Buffer gradient_;              // of the current layer's output and input, in turns
  ops::Buffer next_gradient_;
  std::vector<float> losses_;         // of each sample
  std::vector<int32_t> predictions_;  // of each sample
};

// torch: Flatten, then Linear and ReLU per width in `hidden`, then Linear. Tensors layers.I.weight,
// layers.I.bias.
std::unique_ptr<Model> make_mlp(const Job& job, const InputShape& input, int64_t classes);

// The small MNIST network of the PyTorch courses at CSC: twice 5x5 convolution (16, 32 channels),
// BatchNorm, ReLU, 2x2 max pooling; then one Linear. Tensors layer1.0 and layer2.0 (convolution),
// layer1.1 and layer2.1 (BatchNorm), fc.
std::unique_ptr<Model> make_convnet(const Job& job, const InputShape& input, int64_t classes);

}  // namespace pushpull
