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

// Fields of an image model.
struct ImageFields {
  size_t pixels = 0;
  size_t label = 0;
  InputShape input;
  int64_t classes = 0;
};

// Throws Error(kUsage) if the dataset has no images with a label.
ImageFields image_fields_of(const Job& job, const FieldTable& fields) {
  const std::optional<size_t> pixels = fields.find("pixels");
  const std::optional<size_t> label = fields.find("label");
  if (!pixels || !label || fields.fields[*pixels].shape.size() != 3) {
    throw Error(ErrorCode::kUsage,
                "[models] model = " + job.model + " needs the fields pixels, label; dataset = " +
                    job.dataset + " has " + fields.names() + ": choose another dataset or model");
  }
  const std::vector<int64_t>& shape = fields.fields[*pixels].shape;
  return {*pixels, *label, {shape[0], shape[1], shape[2]}, fields.fields[*label].limit};
}

// Called before a backend is created, since opening a device is slow.
void check_model(const Job& job, const ImageFields& fields) {
  const InputShape& input = fields.input;
  check_positive("micro-batch", job.micro_batch);
  check_positive("threads", job.threads);
  check_positive("classes", fields.classes);
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

LayerBuilder layers_of(const Job& job, const ImageFields& fields) {
  if (job.model == "mlp") return mlp_layers(job, fields.input, fields.classes);
  if (job.model == "convnet") return convnet_layers(job, fields.input, fields.classes);
  throw Error(ErrorCode::kUsage,
              "[models] unknown model '" + job.model + "'; there are mlp and convnet");
}

}  // namespace

std::unique_ptr<Model> make_model_on(std::unique_ptr<ops::Backend> backend, const Job& job,
                                     const FieldTable& fields) {
  const ImageFields image = image_fields_of(job, fields);
  check_model(job, image);
  return std::make_unique<Sequential>(std::make_unique<Network>(
      std::move(backend), NetworkShape{job.micro_batch, fields, image.pixels, image.label},
      layers_of(job, image)));
}

std::unique_ptr<Model> make_model(const Job& job, const FieldTable& fields,
                                  const device::DeviceName& device) {
  const ImageFields image = image_fields_of(job, fields);
  check_model(job, image);
  layers_of(job, image);
  const ops::Precision precision = ops::parse_precision(job.precision);
  const bool is_scaled = precision == ops::Precision::kFp16;
  return make_model_on(
      ops::make_backend({.device = device,
                         .threads = static_cast<int>(job.threads),
                         .precision = precision,
                         .loss_scale = is_scaled ? static_cast<float>(job.loss_scale) : 1.0F}),
      job, fields);
}

}  // namespace pushpull
