// Layers: an operation with its parameters, under the names of PyTorch's state_dict. A layer adds
// its parameters to the table in that order.
#pragma once

#include <cstdint>
#include <string>

#include "models/graph/graph.h"
#include "models/ops/ops.h"

namespace pushpull {

// torch.nn.Linear of rows of x, followed by ReLU if `relu`. Adds NAME.weight [M, K] and NAME.bias
// [M].
Value linear(GraphBuilder& graph, const std::string& name, Value x, int64_t outputs,
             bool relu = false);

// torch.nn.Conv2d. Adds NAME.weight [O, C, k, k] and NAME.bias [O].
Value convolution(GraphBuilder& graph, const std::string& name, Value x, int64_t outputs,
                  int64_t kernel, int64_t padding);

// torch.nn.BatchNorm2d with momentum 0.1, followed by ReLU if `relu`. Adds NAME.weight, NAME.bias,
// NAME.running_mean and NAME.running_var [C].
Value batch_norm(GraphBuilder& graph, const std::string& name, Value x, bool relu);

// torch.nn.MaxPool2d(2).
Value max_pool(GraphBuilder& graph, const std::string& name, Value x);

// torch.nn.Flatten of images in the backend's layout; plain values are rows already.
Value flatten(GraphBuilder& graph, const std::string& name, Value x);

}  // namespace pushpull
