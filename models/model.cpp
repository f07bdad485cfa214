#include "models/model.h"

#include "common/error.h"
#include "models/sequential.h"

namespace pushpull {

namespace {

void check_positive(const char* what, int64_t value) {
  if (value > 0 && value <= INT32_MAX) return;
  throw Error(ErrorCode::kUsage, std::string("[models] ") + what +
                                     " must be from 1 to 2147483647, got " + std::to_string(value));
}

}  // namespace

std::unique_ptr<Model> make_model(const Job& job, const InputShape& input, int64_t classes) {
  check_positive("micro-batch", job.micro_batch);
  check_positive("threads", job.threads);
  check_positive("classes", classes);
  check_positive("input channels", input.channels);
  check_positive("input height", input.height);
  check_positive("input width", input.width);
  for (const int64_t width : job.hidden) check_positive("a width in hidden", width);
  if (job.model == "mlp") return make_mlp(job, input, classes);
  if (job.model == "convnet") return make_convnet(job, input, classes);
  throw Error(ErrorCode::kUsage,
              "[models] unknown model '" + job.model + "'; there are mlp and convnet");
}

}  // namespace pushpull
