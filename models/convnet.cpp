// The model `convnet`: two blocks of convolution, batch normalisation, ReLU and pooling, then a
// linear layer.
#include <string>

#include "common/base/error.h"
#include "common/job/job.h"
#include "models/network.h"

namespace pushpull {

namespace {

// Convolution, BatchNorm, ReLU, pooling; returns the shape of the output.
ops::ImageShape append_block(LayerRow& row, const std::string& name, const ops::ImageShape& image,
                             int64_t channels, bool first) {
  const ops::ConvolutionShape convolution{
      .input = image,
      .outputs = channels,
      .kernel = 5,
      .padding = 2,
      .input_layout = first ? ops::Layout::kPlain : ops::Layout::kNative,
      .input_gradient = !first};
  row.append(make_convolution_layer(row.backend, row.table, name + ".0", convolution));
  row.append(make_batch_norm_layer(row.backend, row.table, name + ".1",
                                   {.image = convolution.output(), .relu = true}));
  const ops::MaxPoolShape pool{convolution.output()};
  row.append(make_max_pool_layer(row.backend, pool));
  return pool.output();
}

}  // namespace

LayerBuilder convnet_layers(const Job& job, const InputShape& input, int64_t classes) {
  if (input.height < 4 || input.width < 4) {  // each pooling halves it
    throw Error(ErrorCode::kUsage,
                "[models] convnet needs images of at least 4x4, got " +
                    std::to_string(input.height) + "x" + std::to_string(input.width) + " with " +
                    std::to_string(input.channels) + " channel(s); use model = mlp");
  }
  return [samples = job.micro_batch, input, classes](LayerRow& row) {
    ops::ImageShape image{samples, input.channels, input.height, input.width};
    image = append_block(row, "layer1", image, 16, true);
    image = append_block(row, "layer2", image, 32, false);
    row.append(make_flatten_layer(row.backend, image));
    const int64_t width = image.channels * image.height * image.width;
    row.append(make_linear_layer(row.backend, row.table, "fc", {samples, width, classes, false}));
  };
}

}  // namespace pushpull
