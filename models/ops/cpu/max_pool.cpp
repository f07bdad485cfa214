// Max pooling on oneDNN; its workspace records the maximum of each window. Also copies between
// layouts, and between floats and activations, which are the same type here.
#include <algorithm>

#include "models/ops/cpu/operations.h"

namespace pushpull::ops::cpu {

namespace {

struct Plans {
  Plans(const Shared& shared, const MaxPoolShape& shape)
      : x(describe(dims_of(shape.image), native_tag())),
        y(describe(dims_of(shape.output()), native_tag())),
        forward({dnnl::prop_kind::forward_training, dnnl::algorithm::pooling_max, x, y, two, two,
                 none, none},
                attributes(), shared.engine),
        backward({dnnl::algorithm::pooling_max, x, y, two, two, none, none}, attributes(),
                 shared.engine, forward) {}
  dnnl::memory::dims two{2, 2};
  dnnl::memory::dims none{0, 0};
  dnnl::memory::desc x;
  dnnl::memory::desc y;
  dnnl::pooling_forward::primitive_desc forward;
  dnnl::pooling_backward::primitive_desc backward;
};

class CpuMaxPool final : public MaxPool {
 public:
  CpuMaxPool(Shared& shared, const MaxPoolShape& shape)
      : CpuMaxPool(shared, Plans(shared, shape)) {}

  void forward(const Activation* x, Activation* y) override {
    forward_.bind(DNNL_ARG_SRC, floats(x));
    forward_.bind(DNNL_ARG_DST, floats(y));
    forward_.run();
  }

  void backward(const Activation* dy, Activation* dx) override {
    backward_.bind(DNNL_ARG_DIFF_DST, floats(dy));
    backward_.bind(DNNL_ARG_DIFF_SRC, floats(dx));
    backward_.run();
  }

 private:
  CpuMaxPool(Shared& shared, const Plans& plans)
      : forward_(shared, dnnl::pooling_forward(plans.forward), plans.forward.scratchpad_desc(),
                 {{DNNL_ARG_SRC, plans.x},
                  {DNNL_ARG_DST, plans.y},
                  {DNNL_ARG_WORKSPACE, plans.forward.workspace_desc()}}),
        backward_(shared, dnnl::pooling_backward(plans.backward), plans.backward.scratchpad_desc(),
                  {{DNNL_ARG_DIFF_DST, plans.y},
                   {DNNL_ARG_DIFF_SRC, plans.x},
                   {DNNL_ARG_WORKSPACE, plans.forward.workspace_desc()}}),
        workspace_(allocate(floats_of(plans.forward.workspace_desc()))) {
    forward_.bind(DNNL_ARG_WORKSPACE, workspace_.data());
    backward_.bind(DNNL_ARG_WORKSPACE, workspace_.data());
  }

  Primitive forward_;
  Primitive backward_;
  Buffer workspace_;
};

class CpuRelayout final : public Relayout {
 public:
  CpuRelayout(Shared& shared, const ImageShape& shape)
      : to_plain_(make_reorder(shared, describe(dims_of(shape), native_tag()),
                               describe(dims_of(shape), Tag::nchw))),
        to_native_(make_reorder(shared, describe(dims_of(shape), Tag::nchw),
                                describe(dims_of(shape), native_tag()))) {}

  void to_plain(const Activation* native, Activation* plain) override {
    run(to_plain_, floats(native), floats(plain));
  }
  void to_native(const Activation* plain, Activation* native) override {
    run(to_native_, floats(plain), floats(native));
  }

 private:
  static void run(Primitive& reorder, const float* from, float* to) {
    reorder.bind(DNNL_ARG_FROM, from);
    reorder.bind(DNNL_ARG_TO, to);
    reorder.run();
  }

  Primitive to_plain_;
  Primitive to_native_;
};

class CpuElements final : public Elements {
 public:
  explicit CpuElements(int64_t count) : count_(count) {}
  const Activation* in(const float* from) override { return from; }
  void out(const Activation* activations, float* to) override {
    std::copy_n(floats(activations), count_, to);
  }

 private:
  int64_t count_;
};

}  // namespace

std::unique_ptr<MaxPool> make_max_pool(Shared& shared, const MaxPoolShape& shape) {
  return std::make_unique<CpuMaxPool>(shared, shape);
}

std::unique_ptr<Relayout> make_relayout(Shared& shared, const ImageShape& shape) {
  return std::make_unique<CpuRelayout>(shared, shape);
}

std::unique_ptr<Elements> make_elements(int64_t count) {
  return std::make_unique<CpuElements>(count);
}

}  // namespace pushpull::ops::cpu
