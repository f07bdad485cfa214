// Layers: an operation with its parameters, under the names of PyTorch's state_dict. A layer adds
// its parameters to the table in that order.
#pragma once

#include <cstdint>
#include <string>

#include "models/graph.h"
#include "models/ops/ops.h"
#include "models/ops/pointwise.h"

namespace pushpull {

// torch.nn.Linear, followed by ReLU if `relu`. Adds NAME.weight [M, K] and NAME.bias [M]. The rows
// of x are its last dimension; an image is one row.
Value linear(GraphBuilder& graph, const std::string& name, Value x, int64_t outputs,
             bool relu = false);

// The same without a bias, on a weight [M, K] that is there already.
Value linear_on(GraphBuilder& graph, const std::string& name, Value x, Param weight);

// torch.nn.Linear with these initial weights and a bias of zeros without weight decay. Adds
// NAME.weight [M, K] and NAME.bias [M].
Value dense(GraphBuilder& graph, const std::string& name, Value x, int64_t outputs,
            const Init& init);

// Conv1D of Hugging Face's GPT-2: a linear layer with its weight [K, M] transposed. Adds
// NAME.weight and NAME.bias.
Value conv1d(GraphBuilder& graph, const std::string& name, Value x, int64_t outputs,
             const Init& init);

// torch.nn.Embedding of ids [N, T] on a table [V, E].
Value embedding(GraphBuilder& graph, const std::string& name, Value ids, Param table);

// Adds row t of a table [P, E] to position t of x [N, T, E].
Value add_positions(GraphBuilder& graph, const std::string& name, Value x, Param table);

// torch.nn.LayerNorm: adds NAME.weight and NAME.bias [E]. Not centred: torch.nn.RMSNorm, which has
// NAME.weight only.
Value layer_norm(GraphBuilder& graph, const std::string& name, Value x, bool centred,
                 float epsilon);

Value activate(GraphBuilder& graph, const std::string& name, Value x, ops::Function function);
// Nothing is added if p is 0.
Value dropout(GraphBuilder& graph, const std::string& name, Value x, double p);
Value add(GraphBuilder& graph, const std::string& name, Value a, Value b);

// Attention on packed queries, keys and values [N, T, 3E]. Both kinds throw Error(kUsage) if the heads
// do not divide E.
Value self_attention(GraphBuilder& graph, const std::string& name, Value qkv, int64_t heads,
                     bool causal, double dropout);

// The values that attention reads, [N, T, E] each.
struct Attended {
  Value queries;
  Value keys;
  Value values;
};

// Attention of all queries to the keys whose mask [N, T] is not 0.
Value attention(GraphBuilder& graph, const std::string& name, const Attended& attended, Value mask,
                int64_t heads, double dropout);

// Element `index` of the last dimension: [N, T, K] gives [N, T].
Value select_last(GraphBuilder& graph, const std::string& name, Value x, int64_t index);

// Position `index`: [N, T, E] gives [N, E].
Value select_position(GraphBuilder& graph, const std::string& name, Value x, int64_t index);

// The part of an image behind an element of the output.
struct Window {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;  // at each edge
};

// torch.nn.Conv2d. Adds NAME.weight [O, C, k, k] and NAME.bias [O].
Value convolution(GraphBuilder& graph, const std::string& name, Value x, int64_t outputs,
                  const Window& window);

// torch.nn.Conv2d without a bias, for a batch norm behind it. Adds NAME.weight with the initial
// values of torch.nn.init.kaiming_normal_(mode="fan_out") (He et al., arXiv:1502.01852).
Value convolution_without_bias(GraphBuilder& graph, const std::string& name, Value x,
                               int64_t outputs, const Window& window);

// torch.nn.BatchNorm2d with momentum 0.1, followed by ReLU if `relu`. Adds NAME.weight, NAME.bias,
// NAME.running_mean and NAME.running_var [C].
Value batch_norm(GraphBuilder& graph, const std::string& name, Value x, bool relu);

// torch.nn.MaxPool2d.
Value max_pool(GraphBuilder& graph, const std::string& name, Value x, const Window& window);

// Mean of each channel: torch.nn.AdaptiveAvgPool2d(1) and Flatten.
Value average_pool(GraphBuilder& graph, const std::string& name, Value x);

// torch.nn.Flatten of images in the backend's layout; plain values are rows already.
Value flatten(GraphBuilder& graph, const std::string& name, Value x);

}  // namespace pushpull
