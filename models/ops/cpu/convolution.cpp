// Convolution on oneDNN's direct kernels. They require weights (and some of them images) in blocked
// layouts, so tensors are copied around each run: microseconds against milliseconds of compute.
#include "models/ops/convolution.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "common/base/error.h"
#include "models/ops/cpu/operations.h"

namespace pushpull::ops::cpu {

namespace {

using dnnl::algorithm;
using dnnl::memory;
using ForwardPlan = dnnl::convolution_forward::primitive_desc;
using WeightsPlan = dnnl::convolution_backward_weights::primitive_desc;
using DataPlan = dnnl::convolution_backward_data::primitive_desc;

// The tensors of one convolution, in the caller's layout or as offered to a kernel.
struct Tensors {
  memory::desc x, w, b, y;
};

memory::dims weight_dims(const ConvolutionShape& shape) {
  return {shape.outputs, shape.input.channels, shape.kernel, shape.kernel};
}

// w: f32 if it is the caller's.
Tensors tensors(Type type, Type w_type, const ConvolutionShape& shape, Tag x, Tag w, Tag y) {
  return {describe(dims_of(shape.input), x, type), describe(weight_dims(shape), w, w_type),
          describe({shape.outputs}, Tag::x), describe(dims_of(shape.output()), y, type)};
}

// Kernels for three directions, each the best for the layouts offered.
class Plans {
 public:
  Plans(const Shared& shared, const ConvolutionShape& shape)
      : engine_(shared.engine),
        bias_(shape.bias),
        stride_{shape.stride, shape.stride},
        before_{shape.padding, shape.padding} {
    const ImageShape y = shape.output();
    // zeros that the last window reads; negative if it ends before the image does
    const auto after = [&](int64_t in, int64_t out) {
      return (out - 1) * shape.stride + shape.kernel - in - shape.padding;
    };
    after_ = {after(shape.input.height, y.height), after(shape.input.width, y.width)};
    const bool plain = shape.input_layout == Layout::kPlain;
    const Type type = shared.activation;
    caller =
        tensors(type, Type::f32, shape, plain ? Tag::nchw : native_tag(), Tag::oihw, native_tag());
    // a plain image of few channels is read in place if there is a kernel for it
    const Tensors blocked =
        tensors(type, type, shape, plain ? Tag::any : native_tag(), Tag::any, native_tag());
    const Tensors flat = tensors(type, type, shape, Tag::nchw, Tag::any, Tag::nchw);
    forward = faster(plan_forward(blocked), [&] { return plan_forward(flat); });
    weights = faster(plan_weights(blocked), [&] { return plan_weights(flat); });
    if (shape.input_gradient) {
      data = faster(plan_data(blocked), [&] { return plan_data(flat); });
    }
  }

  Tensors caller;
  ForwardPlan forward;
  WeightsPlan weights;
  DataPlan data;

 private:
  // For blocked layouts oneDNN sometimes has only a plain loop (one input channel on AVX2, training
  // on SSE4.1), but a real kernel for plain images: 0.34 ms instead of 36 for the weights of 8
  // images of 28x28.
  template <class Plan, class Other>
  static Plan faster(const Plan& plan, const Other& other) {
    const auto is_loop = [](const Plan& p) {
      return std::strncmp(p.impl_info_str(), "ref", 3) == 0;
    };
    if (!is_loop(plan)) return plan;
    const Plan second = other();
    return is_loop(second) ? plan : second;
  }

  ForwardPlan plan_forward(const Tensors& t) const {
    constexpr auto kind = dnnl::prop_kind::forward_training;
    constexpr auto direct = algorithm::convolution_direct;
    if (!bias_) {
      return {{kind, direct, t.x, t.w, t.y, stride_, before_, after_}, attributes(), engine_};
    }
    return {{kind, direct, t.x, t.w, t.b, t.y, stride_, before_, after_}, attributes(), engine_};
  }
  WeightsPlan plan_weights(const Tensors& t) const {
    constexpr auto direct = algorithm::convolution_direct;
    const ForwardPlan hint = plan_forward(t);
    // gradients are f32 in any case
    const memory::desc dw = describe(t.w.dims(), Tag::any);
    if (!bias_) {
      return {{direct, t.x, dw, t.y, stride_, before_, after_}, attributes(), engine_, hint};
    }
    return {{direct, t.x, dw, t.b, t.y, stride_, before_, after_}, attributes(), engine_, hint};
  }
  DataPlan plan_data(const Tensors& t) const {
    return {{algorithm::convolution_direct, t.x, t.w, t.y, stride_, before_, after_},
            attributes(),
            engine_,
            plan_forward(t)};
  }

  dnnl::engine engine_;
  bool bias_;
  memory::dims stride_;
  memory::dims before_;  // zeros above and to the left
  memory::dims after_;
};

// An aligned copy of a tensor, or one in another layout, if a kernel needs it; otherwise the
// caller's memory is used directly.
class Staged {
 public:
  enum class Direction { kIn, kOut };

  Staged(Shared& shared, const memory::desc& caller, const memory::desc& kernel,
         Direction direction, bool always) {
    if (caller == kernel && !always) return;
    buffer_ = allocate(floats_of(kernel));
    const bool in = direction == Direction::kIn;
    copy_ = in ? make_reorder(shared, caller, kernel) : make_reorder(shared, kernel, caller);
    copy_->bind(in ? DNNL_ARG_TO : DNNL_ARG_FROM, buffer_.data());
  }

  // Returns the address that the kernel reads, filled from the caller's tensor.
  const void* in(const void* caller) {
    if (!copy_) return caller;
    copy_->bind(DNNL_ARG_FROM, caller);
    copy_->run();
    return buffer_.data();
  }
  // Returns the address that the kernel writes. Call `finish` afterwards.
  void* out(void* caller) const { return copy_ ? buffer_.data() : caller; }
  void finish(void* caller) {
    if (!copy_) return;
    copy_->bind(DNNL_ARG_TO, caller);
    copy_->run();
  }

 private:
  Buffer buffer_;
  std::optional<Primitive> copy_;
};

constexpr auto kIn = Staged::Direction::kIn;
constexpr auto kOut = Staged::Direction::kOut;

class CpuConvolution final : public Operation {
 public:
  CpuConvolution(Shared& shared, const ConvolutionShape& shape)
      : CpuConvolution(shared, shape, Plans(shared, shape)) {}

  Needs needs() const override { return {.inputs = 1, .splits = true}; }

  void forward(const Run& run) override {
    if (has_bias_) std::copy_n(run.w[1], outputs_, bias_.data());
    forward_.kernel.bind(DNNL_ARG_SRC, forward_.x.in(run.x[0].data));
    forward_.kernel.bind(DNNL_ARG_WEIGHTS, forward_.w.in(run.w[0]));
    forward_.kernel.bind(DNNL_ARG_DST, forward_.y.out(run.y.data));
    forward_.kernel.run();
    forward_.y.finish(run.y.data);
  }

  void backward_weights(const Run& run) override {
    const void* dy = run.dy.data;
    weights_.kernel.bind(DNNL_ARG_SRC, weights_.x.in(run.x[0].data));
    weights_.kernel.bind(DNNL_ARG_DIFF_DST, weights_.y.in(dy));
    weights_.kernel.bind(DNNL_ARG_DIFF_WEIGHTS, weights_.w.out(run.dw[0]));
    weights_.kernel.run();
    weights_.w.finish(run.dw[0]);
    if (has_bias_) std::copy_n(bias_gradient_.data(), outputs_, run.dw[1]);
  }

  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    PP_ASSERT(data_.has_value());
    const void* dy = run.dy.data;
    data_->kernel.bind(DNNL_ARG_DIFF_DST, data_->y.in(dy));
    data_->kernel.bind(DNNL_ARG_WEIGHTS, data_->w.in(run.w[0]));
    data_->kernel.bind(DNNL_ARG_DIFF_SRC, data_->x.out(run.dx[0].data));
    data_->kernel.run();
    data_->x.finish(run.dx[0].data);
  }

 private:
  // A kernel with the staged copies of its tensors.
  struct Kernel {
    Staged x, w, y;
    Primitive kernel;
  };

  CpuConvolution(Shared& shared, const ConvolutionShape& shape, const Plans& plans)
      : outputs_(shape.outputs),
        has_bias_(shape.bias),
        bias_(allocate(floats_of(plans.caller.b))),
        bias_gradient_(allocate(floats_of(plans.caller.b))),
        forward_(make_forward(shared, shape, plans)),
        weights_(make_weights(shared, shape, plans)) {
    if (has_bias_) {
      forward_.kernel.bind(DNNL_ARG_BIAS, bias_.data());
      weights_.kernel.bind(DNNL_ARG_DIFF_BIAS, bias_gradient_.data());
    }
    if (shape.input_gradient) data_ = make_data(shared, plans);
  }

  // Plain images and weights belong to the caller and are not aligned: they are always staged.
  static Kernel make_forward(Shared& shared, const ConvolutionShape& shape, const Plans& plans) {
    const ForwardPlan& plan = plans.forward;
    const bool plain = shape.input_layout == Layout::kPlain;
    std::vector<Primitive::Argument> arguments{{DNNL_ARG_SRC, plan.src_desc()},
                                               {DNNL_ARG_WEIGHTS, plan.weights_desc()},
                                               {DNNL_ARG_DST, plan.dst_desc()}};
    if (shape.bias) arguments.push_back({DNNL_ARG_BIAS, plans.caller.b});
    return {Staged(shared, plans.caller.x, plan.src_desc(), kIn, plain),
            Staged(shared, plans.caller.w, plan.weights_desc(), kIn, true),
            Staged(shared, plans.caller.y, plan.dst_desc(), kOut, false),
            Primitive(shared, dnnl::convolution_forward(plan), plan.scratchpad_desc(), arguments)};
  }

  static Kernel make_weights(Shared& shared, const ConvolutionShape& shape, const Plans& plans) {
    const WeightsPlan& plan = plans.weights;
    const bool plain = shape.input_layout == Layout::kPlain;
    std::vector<Primitive::Argument> arguments{{DNNL_ARG_SRC, plan.src_desc()},
                                               {DNNL_ARG_DIFF_DST, plan.diff_dst_desc()},
                                               {DNNL_ARG_DIFF_WEIGHTS, plan.diff_weights_desc()}};
    if (shape.bias) arguments.push_back({DNNL_ARG_DIFF_BIAS, plans.caller.b});
    return {Staged(shared, plans.caller.x, plan.src_desc(), kIn, plain),
            Staged(shared, plans.caller.w, plan.diff_weights_desc(), kOut, true),
            Staged(shared, plans.caller.y, plan.diff_dst_desc(), kIn, false),
            Primitive(shared, dnnl::convolution_backward_weights(plan), plan.scratchpad_desc(),
                      arguments)};
  }

  static Kernel make_data(Shared& shared, const Plans& plans) {
    const DataPlan& plan = plans.data;
    const std::vector<Primitive::Argument> arguments{{DNNL_ARG_DIFF_DST, plan.diff_dst_desc()},
                                                     {DNNL_ARG_WEIGHTS, plan.weights_desc()},
                                                     {DNNL_ARG_DIFF_SRC, plan.diff_src_desc()}};
    return {Staged(shared, plans.caller.x, plan.diff_src_desc(), kOut, false),
            Staged(shared, plans.caller.w, plan.weights_desc(), kIn, true),
            Staged(shared, plans.caller.y, plan.diff_dst_desc(), kIn, false),
            Primitive(shared, dnnl::convolution_backward_data(plan), plan.scratchpad_desc(),
                      arguments)};
  }

  int64_t outputs_;
  bool has_bias_;
  Buffer bias_;  // aligned copies of the caller's b and db
  Buffer bias_gradient_;
  Kernel forward_;
  Kernel weights_;
  std::optional<Kernel> data_;
};

}  // namespace

std::unique_ptr<Operation> make_convolution(Shared& shared, const Spec& spec) {
  return std::make_unique<CpuConvolution>(shared, spec_as<ConvolutionSpec>(spec).shape());
}

}  // namespace pushpull::ops::cpu
