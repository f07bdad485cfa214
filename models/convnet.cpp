// The model `convnet`: two blocks of convolution, batch normalisation, ReLU and pooling, then a
// linear layer.
#include <string>

#include "common/base/error.h"
#include "common/job/job.h"
#include "models/layers.h"
#include "models/models.h"

namespace pushpull {

namespace {

// Convolution, BatchNorm, ReLU, pooling.
Value block(GraphBuilder& graph, const std::string& name, Value x, int64_t channels) {
  x = convolution(graph, name + ".0", x, channels, {.kernel = 5, .padding = 2});
  x = batch_norm(graph, name + ".1", x, true);
  return max_pool(graph, name + ".3", x, {.kernel = 2, .stride = 2});
}

}  // namespace

Graph convnet_graph(const Job& job, const FieldTable& fields) {
  GraphBuilder graph(job.model, job.dataset, job.micro_batch, fields);
  const int64_t classes = graph.field("label").limit;
  const std::vector<int64_t> image = graph.field("pixels").shape;
  if (image[1] < 4 || image[2] < 4) {  // each pooling halves it
    throw Error(ErrorCode::kUsage, "[models] convnet needs images of at least 4x4, got " +
                                       std::to_string(image[1]) + "x" + std::to_string(image[2]) +
                                       " with " + std::to_string(image[0]) +
                                       " channel(s); use model = mlp");
  }
  Value x = graph.input("pixels");
  x = block(graph, "layer1", x, 16);
  graph.cut();
  x = block(graph, "layer2", x, 32);
  graph.cut();
  x = linear(graph, "fc", flatten(graph, "flatten", x), classes);
  graph.head({.name = "label"}, x, "label");
  return graph.take();
}

}  // namespace pushpull
