// The models `resnet18` and `resnet50`.
#include <array>
#include <string>

#include "common/job/job.h"
#include "models/layers.h"
#include "models/models.h"

namespace pushpull {

namespace {

// Blocks of each of the four stages.
using Depths = std::array<int64_t, 4>;

class Resnet {
 public:
  Resnet(const Job& job, const FieldTable& fields)
      : has_small_stem_(job.stem == "cifar"),
        graph_(job.model, job.dataset, job.micro_batch, fields) {}

  Graph build(const Depths& depths, bool has_bottlenecks) {
    const int64_t classes = graph_.field("label").limit;
    Value x = stem(graph_.input("pixels"));
    for (size_t stage = 0; stage < depths.size(); ++stage) {
      const int64_t channels = int64_t{64} << stage;
      for (int64_t i = 0; i < depths.at(stage); ++i) {
        const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i);
        const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        graph_.cut();
        x = has_bottlenecks ? bottleneck(name, x, channels, stride)
                            : basic_block(name, x, channels, stride);
      }
    }
    graph_.cut();
    x = average_pool(graph_, "avgpool", x);
    x = linear(graph_, "fc", x, classes);
    graph_.head({.name = "label"}, x, "label");
    Graph graph = graph_.take();
    for (TensorInfo& tensor : graph.table.tensors) {
      if (tensor.shape.size() == 1) tensor.decay = false;  // norms and biases
    }
    return graph;
  }

 private:
  Value stem(Value x) {
    const Window window = has_small_stem_ ? Window{.kernel = 3, .padding = 1}
                                          : Window{.kernel = 7, .stride = 2, .padding = 3};
    x = convolution_without_bias(graph_, "conv1", x, 64, window);
    x = batch_norm(graph_, "bn1", x, true);
    if (has_small_stem_) return x;
    return max_pool(graph_, "maxpool", x, {.kernel = 3, .stride = 2, .padding = 1});
  }

  // Convolution I of a block and its batch norm.
  Value normalized(const std::string& block, int64_t i, Value x, int64_t channels,
                   const Window& window, bool relu) {
    const std::string index = std::to_string(i);
    x = convolution_without_bias(graph_, block + ".conv" + index, x, channels, window);
    return batch_norm(graph_, block + ".bn" + index, x, relu);
  }

  Value basic_block(const std::string& name, Value x, int64_t channels, int64_t stride) {
    Value y = normalized(name, 1, x, channels, {3, stride, 1}, true);
    y = normalized(name, 2, y, channels, {3, 1, 1}, false);
    return joined(name, y, x, stride);
  }

  // The stride is in the 3x3 convolution, as in torchvision ("ResNet V1.5"); the paper has it in
  // the first one.
  Value bottleneck(const std::string& name, Value x, int64_t channels, int64_t stride) {
    Value y = normalized(name, 1, x, channels, {1, 1, 0}, true);
    y = normalized(name, 2, y, channels, {3, stride, 1}, true);
    y = normalized(name, 3, y, 4 * channels, {1, 1, 0}, false);
    return joined(name, y, x, stride);
  }

  // Adds a block's input, projected if its shape is another.
  Value joined(const std::string& name, Value y, Value x, int64_t stride) {
    const int64_t channels = graph_.shape(y)[1];
    if (stride != 1 || graph_.shape(x)[1] != channels) {
      x = convolution_without_bias(graph_, name + ".downsample.0", x, channels, {1, stride, 0});
      x = batch_norm(graph_, name + ".downsample.1", x, false);
    }
    y = add(graph_, name + ".add", y, x);
    return activate(graph_, name + ".relu", y, ops::Function::kRelu);
  }

  bool has_small_stem_;
  GraphBuilder graph_;
};

}  // namespace

Graph resnet18_graph(const Job& job, const FieldTable& fields) {
  return Resnet(job, fields).build({2, 2, 2, 2}, false);
}

Graph resnet50_graph(const Job& job, const FieldTable& fields) {
  return Resnet(job, fields).build({3, 4, 6, 3}, true);
}

}  // namespace pushpull
