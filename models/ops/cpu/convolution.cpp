// Convolution on oneDNN's direct kernels, which want weights in blocks: they are reordered from and
// to PyTorch's layout around each run, a few microseconds against milliseconds of compute.
#include <algorithm>
#include <optional>

#include "models/ops/cpu/operations.h"

namespace pushpull::ops::cpu {

namespace {

using dnnl::algorithm;
using dnnl::memory;

// oneDNN's description of one convolution, in the layouts that the kernels like.
struct Problem {
  explicit Problem(const ConvolutionShape& shape)
      : x_plain(describe(dims_of(shape.input), Tag::nchw)),
        // oneDNN has kernels that read a plain image of 1 to 3 channels; else it asks for its own
        x(describe(dims_of(shape.input),
                   shape.input_layout == Layout::kPlain ? Tag::any : native_tag())),
        w_plain(describe(weight_dims(shape), Tag::oihw)),
        w(describe(weight_dims(shape), Tag::any)),
        b(describe({shape.outputs}, Tag::x)),
        y(describe(dims_of(shape.output()), native_tag())),
        padding{shape.padding, shape.padding} {}

  static memory::dims weight_dims(const ConvolutionShape& shape) {
    return {shape.outputs, shape.input.channels, shape.kernel, shape.kernel};
  }

  memory::desc x_plain, x, w_plain, w, b, y;
  memory::dims stride{1, 1};
  memory::dims padding;
};

using ForwardPlan = dnnl::convolution_forward::primitive_desc;

ForwardPlan plan_forward(const Problem& p, const Shared& shared) {
  return {{dnnl::prop_kind::forward_training, algorithm::convolution_direct, p.x, p.w, p.b, p.y,
           p.stride, p.padding, p.padding},
          attributes(),
          shared.engine};
}

// A tensor in oneDNN's layout, with the copy from or to the caller's plain one.
struct Blocked {
  Blocked(Shared& shared, const memory::desc& blocked, const memory::desc& plain, bool to_blocked)
      : buffer(allocate(floats_of(blocked))),
        reorder(to_blocked ? make_reorder(shared, plain, blocked)
                           : make_reorder(shared, blocked, plain)) {
    reorder.bind(to_blocked ? DNNL_ARG_TO : DNNL_ARG_FROM, buffer.data());
  }

  const float* from_plain(const float* plain) {
    reorder.bind(DNNL_ARG_FROM, plain);
    reorder.run();
    return buffer.data();
  }
  void to_plain(float* plain) {
    reorder.bind(DNNL_ARG_TO, plain);
    reorder.run();
  }

  Buffer buffer;
  Primitive reorder;
};

struct Forward {
  Forward(Shared& shared, const Problem& p, const ForwardPlan& plan)
      : weights(shared, plan.weights_desc(), p.w_plain, true),
        run(shared, dnnl::convolution_forward(plan), plan.scratchpad_desc(),
            {{DNNL_ARG_SRC, plan.src_desc()},
             {DNNL_ARG_WEIGHTS, plan.weights_desc()},
             {DNNL_ARG_BIAS, p.b},
             {DNNL_ARG_DST, p.y}}) {}
  Blocked weights;
  Primitive run;
};

struct BackwardWeights {
  using Plan = dnnl::convolution_backward_weights::primitive_desc;
  BackwardWeights(Shared& shared, const Problem& p, const ForwardPlan& forward)
      : BackwardWeights(shared, p,
                        Plan({algorithm::convolution_direct, forward.src_desc(), p.w, p.b, p.y,
                              p.stride, p.padding, p.padding},
                             attributes(), shared.engine, forward)) {}
  BackwardWeights(Shared& shared, const Problem& p, const Plan& plan)
      : weights(shared, plan.diff_weights_desc(), p.w_plain, false),
        run(shared, dnnl::convolution_backward_weights(plan), plan.scratchpad_desc(),
            {{DNNL_ARG_SRC, plan.src_desc()},
             {DNNL_ARG_DIFF_DST, p.y},
             {DNNL_ARG_DIFF_WEIGHTS, plan.diff_weights_desc()},
             {DNNL_ARG_DIFF_BIAS, p.b}}) {
    run.bind(DNNL_ARG_DIFF_WEIGHTS, weights.buffer.data());
  }
  Blocked weights;
  Primitive run;
};

struct BackwardData {
  using Plan = dnnl::convolution_backward_data::primitive_desc;
  BackwardData(Shared& shared, const Problem& p, const ForwardPlan& forward)
      : BackwardData(
            shared, p,
            Plan({algorithm::convolution_direct, p.x, p.w, p.y, p.stride, p.padding, p.padding},
                 attributes(), shared.engine, forward)) {}
  BackwardData(Shared& shared, const Problem& p, const Plan& plan)
      : weights(shared, plan.weights_desc(), p.w_plain, true),
        run(shared, dnnl::convolution_backward_data(plan), plan.scratchpad_desc(),
            {{DNNL_ARG_DIFF_DST, p.y},
             {DNNL_ARG_WEIGHTS, plan.weights_desc()},
             {DNNL_ARG_DIFF_SRC, p.x}}) {}
  Blocked weights;
  Primitive run;
};

class CpuConvolution final : public Convolution {
 public:
  CpuConvolution(Shared& shared, const ConvolutionShape& shape)
      : CpuConvolution(shared, shape, Problem(shape)) {}

  void forward(const float* x, const float* w, const float* b, float* y) override {
    std::copy_n(b, outputs_, bias_.data());
    forward_.run.bind(DNNL_ARG_SRC, input(x));
    forward_.run.bind(DNNL_ARG_WEIGHTS, forward_.weights.from_plain(w));
    forward_.run.bind(DNNL_ARG_BIAS, bias_.data());
    forward_.run.bind(DNNL_ARG_DST, y);
    forward_.run.run();
  }

  void backward_weights(const float* x, const float* dy, float* dw, float* db) override {
    // a plain x of the caller was copied by forward
    backward_weights_.run.bind(DNNL_ARG_SRC, input_ ? input_->buffer.data() : x);
    backward_weights_.run.bind(DNNL_ARG_DIFF_DST, dy);
    backward_weights_.run.bind(DNNL_ARG_DIFF_BIAS, bias_.data());
    backward_weights_.run.run();
    backward_weights_.weights.to_plain(dw);
    std::copy_n(bias_.data(), outputs_, db);
  }

  void backward_data(const float* dy, const float* w, float* dx) override {
    backward_data_->run.bind(DNNL_ARG_DIFF_DST, dy);
    backward_data_->run.bind(DNNL_ARG_WEIGHTS, backward_data_->weights.from_plain(w));
    backward_data_->run.bind(DNNL_ARG_DIFF_SRC, dx);
    backward_data_->run.run();
  }

 private:
  CpuConvolution(Shared& shared, const ConvolutionShape& shape, const Problem& problem)
      : CpuConvolution(shared, shape, problem, plan_forward(problem, shared)) {}

  CpuConvolution(Shared& shared, const ConvolutionShape& shape, const Problem& problem,
                 const ForwardPlan& plan)
      : outputs_(shape.outputs),
        bias_(allocate(floats_of(problem.b))),
        forward_(shared, problem, plan),
        backward_weights_(shared, problem, plan) {
    if (shape.input_layout == Layout::kPlain) {
      input_.emplace(shared, plan.src_desc(), problem.x_plain, true);
    }
    if (shape.input_gradient) backward_data_.emplace(shared, problem, plan);
  }

  const float* input(const float* x) { return input_ ? input_->from_plain(x) : x; }

  int64_t outputs_;
  Buffer bias_;                   // aligned stand-in for the caller's b and db
  std::optional<Blocked> input_;  // aligned stand-in for the caller's images
  Forward forward_;
  BackwardWeights backward_weights_;
  std::optional<BackwardData> backward_data_;
};

}  // namespace

std::unique_ptr<Convolution> make_convolution(Shared& shared, const ConvolutionShape& shape) {
  return std::make_unique<CpuConvolution>(shared, shape);
}

}  // namespace pushpull::ops::cpu
