// Copies images between C order and the backend's blocks.
#include "models/ops/flatten.h"

#include "models/ops/cpu/operations.h"

namespace pushpull::ops::cpu {

namespace {

class CpuRelayout final : public Relayout {
 public:
  CpuRelayout(Shared& shared, const ImageShape& shape)
      : to_plain_(make_reorder(shared, describe(dims_of(shape), native_tag(), shared.activation),
                               describe(dims_of(shape), Tag::nchw, shared.activation))),
        to_native_(make_reorder(shared, describe(dims_of(shape), Tag::nchw, shared.activation),
                                describe(dims_of(shape), native_tag(), shared.activation))) {}

  void to_plain(const Activation* native, Activation* plain) override {
    run(to_plain_, native, plain);
  }
  void to_native(const Activation* plain, Activation* native) override {
    run(to_native_, plain, native);
  }

 private:
  static void run(Primitive& reorder, const Activation* from, Activation* to) {
    reorder.bind(DNNL_ARG_FROM, from);
    reorder.bind(DNNL_ARG_TO, to);
    reorder.run();
  }

  Primitive to_plain_;
  Primitive to_native_;
};

class CpuFlatten final : public Operation {
 public:
  CpuFlatten(Shared& shared, const ImageShape& image) : relayout_(shared, image) {}

  Needs needs() const override { return {}; }
  void forward(const Run& run) override { relayout_.to_plain(run.x[0].data, run.y.data); }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    if (run.dx[0].data != nullptr) relayout_.to_native(run.dy.data, run.dx[0].data);
  }

 private:
  CpuRelayout relayout_;
};

}  // namespace

std::unique_ptr<Operation> make_flatten(Shared& shared, const Spec& spec) {
  return std::make_unique<CpuFlatten>(shared, spec_as<FlattenSpec>(spec).image());
}

std::unique_ptr<Relayout> make_relayout(Shared& shared, const ImageShape& shape) {
  return std::make_unique<CpuRelayout>(shared, shape);
}

}  // namespace pushpull::ops::cpu
