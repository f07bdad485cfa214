// The model `mlp`: a fully connected network with ReLU between its layers.
#include <string>

#include "common/job/job.h"
#include "models/network.h"

namespace pushpull {

LayerBuilder mlp_layers(const Job& job, const InputShape& input, int64_t classes) {
  return [samples = job.micro_batch, hidden = job.hidden, inputs = input.size(),
          classes](LayerRow& row) {
    int64_t width = inputs;
    int index = 0;
    const auto linear = [&](int64_t outputs, bool relu) {
      row.append(make_linear_layer(row.backend, row.table, "layers." + std::to_string(index),
                                   {samples, width, outputs, relu}));
      width = outputs;
      ++index;
    };
    for (const int64_t outputs : hidden) linear(outputs, true);
    linear(classes, false);
  };
}

}  // namespace pushpull
