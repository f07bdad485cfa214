// Flattening: images are plain NCHW on a device, so their rows are the same bytes.
#include "models/ops/flatten.h"

#include "models/ops/cuda/makers.h"
#include "models/ops/cuda/shared.h"

namespace pushpull::ops::cuda {

namespace {

class CudaFlatten final : public Operation {
 public:
  CudaFlatten(Shared& shared, const ImageShape& image)
      : shared_(shared),
        bytes_(static_cast<size_t>(image.size()) * (shared.short_activations() ? 2 : 4)) {}

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true}; }
  void forward(const Run& run) override { move(run.x[0].data, run.y.data); }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    if (run.dx[0].data != nullptr) move(run.dy.data, run.dx[0].data);
  }

 private:
  void move(const void* from, void* to) {
    if (from != to) copy(shared_, from, bytes_, to);
  }

  Shared& shared_;
  size_t bytes_;
};

}  // namespace

std::unique_ptr<Operation> make_flatten(Shared& shared, const Spec& spec) {
  return std::make_unique<CudaFlatten>(shared, spec_as<FlattenSpec>(spec).image());
}

}  // namespace pushpull::ops::cuda
