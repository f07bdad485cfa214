#include <string>

#include "models/sequential.h"

namespace pushpull {

namespace {

class Mlp final : public Sequential {
 public:
  Mlp(const Job& job, const InputShape& input, int64_t classes)
      : Sequential(ops::make_cpu_backend(static_cast<int>(job.threads)), job.micro_batch, classes) {
    int64_t width = input.size();
    int index = 0;
    const auto linear = [&](int64_t outputs, bool relu) {
      append(make_linear_layer(backend(), table_, "layers." + std::to_string(index),
                               {samples(), width, outputs, relu}));
      width = outputs;
      ++index;
    };
    for (const int64_t outputs : job.hidden) linear(outputs, true);
    linear(classes, false);
    finish();
  }
};

}  // namespace

std::unique_ptr<Model> make_mlp(const Job& job, const InputShape& input, int64_t classes) {
  return std::make_unique<Mlp>(job, input, classes);
}

}  // namespace pushpull
