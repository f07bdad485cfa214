// Copies images between C order and the backend's blocks.
#include "models/ops/flatten.h"

#include "models/ops/cpu/operations.h"

namespace pushpull::ops::cpu {

namespace {

class CpuFlatten final : public Operation {
 public:
  CpuFlatten(Shared& shared, const ImageShape& image)
      : to_plain_(make_reorder(shared, describe(dims_of(image), native_tag(), shared.activation),
                               describe(dims_of(image), Tag::nchw, shared.activation))),
        to_native_(make_reorder(shared, describe(dims_of(image), Tag::nchw, shared.activation),
                                describe(dims_of(image), native_tag(), shared.activation))) {}

  Needs needs() const override { return {}; }
  void forward(const Run& run) override { copy(to_plain_, run.x[0].data, run.y.data); }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    if (run.dx[0].data != nullptr) copy(to_native_, run.dy.data, run.dx[0].data);
  }

 private:
  static void copy(Primitive& reorder, const void* from, void* to) {
    reorder.bind(DNNL_ARG_FROM, from);
    reorder.bind(DNNL_ARG_TO, to);
    reorder.run();
  }

  Primitive to_plain_;
  Primitive to_native_;
};

}  // namespace

std::unique_ptr<Operation> make_flatten(Shared& shared, const Spec& spec) {
  return std::make_unique<CpuFlatten>(shared, spec_as<FlattenSpec>(spec).image());
}

}  // namespace pushpull::ops::cpu
