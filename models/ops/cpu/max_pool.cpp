// Max pooling on oneDNN. Its workspace records the maximum of each window.
#include "models/ops/max_pool.h"

#include "models/ops/cpu/operations.h"

namespace pushpull::ops::cpu {

namespace {

struct MaxPoolPlans {
  MaxPoolPlans(const Shared& shared, const MaxPoolShape& shape)
      : kernel{shape.kernel, shape.kernel},
        stride{shape.stride, shape.stride},
        padding{shape.padding, shape.padding},
        x(describe(dims_of(shape.image), native_tag(), shared.activation)),
        y(describe(dims_of(shape.output()), native_tag(), shared.activation)),
        forward({dnnl::prop_kind::forward_training, dnnl::algorithm::pooling_max, x, y, stride,
                 kernel, padding, padding},
                attributes(), shared.engine),
        backward({dnnl::algorithm::pooling_max, x, y, stride, kernel, padding, padding},
                 attributes(), shared.engine, forward) {}
  dnnl::memory::dims kernel;
  dnnl::memory::dims stride;
  dnnl::memory::dims padding;
  dnnl::memory::desc x;
  dnnl::memory::desc y;
  dnnl::pooling_forward::primitive_desc forward;
  dnnl::pooling_backward::primitive_desc backward;
};

// Keeps the workspace.
class CpuMaxPool final : public Operation {
 public:
  CpuMaxPool(Shared& shared, const MaxPoolShape& shape)
      : CpuMaxPool(shared, MaxPoolPlans(shared, shape)) {}

  Needs needs() const override { return {.kept_bytes = workspace_ * sizeof(float)}; }

  void forward(const Run& run) override {
    forward_.bind(DNNL_ARG_SRC, run.x[0].data);
    forward_.bind(DNNL_ARG_DST, run.y.data);
    forward_.bind(DNNL_ARG_WORKSPACE, run.kept);
    forward_.run();
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    backward_.bind(DNNL_ARG_DIFF_DST, run.dy.data);
    backward_.bind(DNNL_ARG_DIFF_SRC, run.dx[0].data);
    backward_.bind(DNNL_ARG_WORKSPACE, run.kept);
    backward_.run();
  }

 private:
  CpuMaxPool(Shared& shared, const MaxPoolPlans& plans)
      : forward_(shared, dnnl::pooling_forward(plans.forward), plans.forward.scratchpad_desc(),
                 {{DNNL_ARG_SRC, plans.x},
                  {DNNL_ARG_DST, plans.y},
                  {DNNL_ARG_WORKSPACE, plans.forward.workspace_desc()}}),
        backward_(shared, dnnl::pooling_backward(plans.backward), plans.backward.scratchpad_desc(),
                  {{DNNL_ARG_DIFF_DST, plans.y},
                   {DNNL_ARG_DIFF_SRC, plans.x},
                   {DNNL_ARG_WORKSPACE, plans.forward.workspace_desc()}}),
        workspace_(floats_of(plans.forward.workspace_desc())) {}

  Primitive forward_;
  Primitive backward_;
  size_t workspace_;  // floats
};

}  // namespace

std::unique_ptr<Operation> make_max_pool(Shared& shared, const Spec& spec) {
  return std::make_unique<CpuMaxPool>(shared, spec_as<MaxPoolSpec>(spec).shape());
}

}  // namespace pushpull::ops::cpu
