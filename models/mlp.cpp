// The model `mlp`: a fully connected network with ReLU between its layers.
#include <string>

#include "common/job/job.h"
#include "models/layers.h"
#include "models/models.h"

namespace pushpull {

Graph mlp_graph(const Job& job, const FieldTable& fields) {
  GraphBuilder graph(job.model, job.dataset, job.micro_batch, fields);
  const int64_t classes = graph.field("label").limit;
  Value x = flatten(graph, "flatten", graph.input("pixels"));
  for (size_t i = 0; i < job.hidden.size(); ++i) {
    if (i > 0) graph.cut();
    x = linear(graph, "layers." + std::to_string(i), x, job.hidden[i], true);
  }
  if (!job.hidden.empty()) graph.cut();
  x = linear(graph, "layers." + std::to_string(job.hidden.size()), x, classes);
  graph.head({.name = "label"}, x, "label");
  return graph.take();
}

}  // namespace pushpull
