#include <string>

#include "common/error.h"
#include "models/sequential.h"

namespace pushpull {

namespace {

class Convnet final : public Sequential {
 public:
  Convnet(const Job& job, const InputShape& input, int64_t classes)
      : Sequential(ops::make_cpu_backend(static_cast<int>(job.threads)), job.micro_batch, classes) {
    ops::ImageShape image{samples(), input.channels, input.height, input.width};
    image = block("layer1", image, 16, true);
    image = block("layer2", image, 32, false);
    append(make_flatten_layer(backend(), image));
    const int64_t width = image.channels * image.height * image.width;
    append(make_linear_layer(backend(), table_, "fc", {samples(), width, classes, false}));
    finish();
  }

 private:
  // Convolution, BatchNorm, ReLU, pooling; returns the shape of what comes out.
  ops::ImageShape block(const std::string& name, const ops::ImageShape& image, int64_t channels,
                        bool first) {
    const ops::ConvolutionShape convolution{
        .input = image,
        .outputs = channels,
        .kernel = 5,
        .padding = 2,
        .input_layout = first ? ops::Layout::kPlain : ops::Layout::kNative,
        .input_gradient = !first};
    append(make_convolution_layer(backend(), table_, name + ".0", convolution));
    append(make_batch_norm_layer(backend(), table_, name + ".1",
                                 {.image = convolution.output(), .relu = true}));
    const ops::MaxPoolShape pool{convolution.output()};
    append(make_max_pool_layer(backend(), pool));
    return pool.output();
  }
};

}  // namespace

std::unique_ptr<Model> make_convnet(const Job& job, const InputShape& input, int64_t classes) {
  if (input.height < 4 || input.width < 4) {  // each pooling halves
    throw Error(ErrorCode::kUsage,
                "[models] convnet needs images of at least 4x4, got " +
                    std::to_string(input.height) + "x" + std::to_string(input.width) + " with " +
                    std::to_string(input.channels) + " channel(s); use model = mlp");
  }
  return std::make_unique<Convnet>(job, input, classes);
}

}  // namespace pushpull
