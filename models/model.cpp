#include "models/model.h"

#include <utility>

#include "common/base/error.h"
#include "common/job/job.h"
#include "models/sequential.h"

namespace pushpull {

namespace {

void check_positive(const char* what, int64_t value) {
  if (value > 0 && value <= INT32_MAX) return;
  throw Error(ErrorCode::kUsage, std::string("[models] ") + what +
                                     " must be from 1 to 2147483647, got " + std::to_string(value));
}

// Called before a backend is created, since opening a device is slow.
void check_model(const Job& job, const InputShape& input, int64_t classes) {
  check_positive("micro-batch", job.micro_batch);
  check_positive("threads", job.threads);
  check_positive("classes", classes);
  check_positive("input channels", input.channels);
  check_positive("input height", input.height);
  check_positive("input width", input.width);
  if (input.channels > INT32_MAX / input.height / input.width) {
    throw Error(ErrorCode::kUsage, "[models] a sample of input " + std::to_string(input.channels) +
                                       "x" + std::to_string(input.height) + "x" +
                                       std::to_string(input.width) +
                                       " has more than 2^31 elements; use a smaller one");
  }
  for (const int64_t width : job.hidden) check_positive("a width in hidden", width);
}

LayerBuilder layers_of(const Job& job, const InputShape& input, int64_t classes) {
  if (job.model == "mlp") return mlp_layers(job, input, classes);
  if (job.model == "convnet") return convnet_layers(job, input, classes);
  throw Error(ErrorCode::kUsage,
              "[models] unknown model '" + job.model + "'; there are mlp and convnet");
}

}  // namespace

std::unique_ptr<Model> make_model_on(std::unique_ptr<ops::Backend> backend, const Job& job,
                                     const InputShape& input, int64_t classes) {
  check_model(job, input, classes);
  const NetworkShape shape{job.micro_batch, input.size(), classes};
  return std::make_unique<Sequential>(
      std::make_unique<Network>(std::move(backend), shape, layers_of(job, input, classes)));
}

std::unique_ptr<Model> make_model(const Job& job, const InputShape& input, int64_t classes,
                                  const device::DeviceName& device) {
  check_model(job, input, classes);
  layers_of(job, input, classes);
  const ops::Precision precision = ops::parse_precision(job.precision);
  const bool is_scaled = precision == ops::Precision::kFp16;
  return make_model_on(
      ops::make_backend({.device = device,
                         .threads = static_cast<int>(job.threads),
                         .precision = precision,
                         .loss_scale = is_scaled ? static_cast<float>(job.loss_scale) : 1.0F}),
      job, input, classes);
}

}  // namespace pushpull
