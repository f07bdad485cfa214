// Cross-entropy on oneDNN's log-softmax: its exp is generated code of one library version, where
// the C library's would differ between machines (DESIGN P1).
#include <algorithm>

#include "common/error.h"
#include "models/ops/cpu/operations.h"

namespace pushpull::ops::cpu {

namespace {

struct Plans {
  Plans(const Shared& shared, const CrossEntropyShape& shape)
      : rows(describe({shape.samples, shape.classes}, Tag::ab)),
        forward({dnnl::prop_kind::forward_training, rows, 1}, attributes(), shared.engine),
        backward({rows, rows, 1}, attributes(), shared.engine, forward) {}
  dnnl::memory::desc rows;
  dnnl::logsoftmax_forward::primitive_desc forward;
  dnnl::logsoftmax_backward::primitive_desc backward;
};

class CpuCrossEntropy final : public CrossEntropy {
 public:
  CpuCrossEntropy(Shared& shared, const CrossEntropyShape& shape)
      : CpuCrossEntropy(shared, shape, Plans(shared, shape)) {}

  void forward(const float* logits, const int32_t* labels, int64_t count, float* losses) override {
    PP_ASSERT(count >= 0 && count <= samples_);
    forward_.bind(DNNL_ARG_SRC, logits);
    forward_.run();
    for (int64_t n = 0; n < count; ++n) {
      PP_ASSERT(labels[n] >= 0 && labels[n] < classes_);
      losses[n] = -log_softmax_.data()[n * classes_ + labels[n]];
    }
  }

  // d loss / d log-softmax is -1/N at the label; log-softmax's own backward does the rest.
  void backward(const int32_t* labels, float* dlogits) override {
    float* seed = seed_.data();
    const float share = -1.0F / static_cast<float>(samples_);
    std::fill_n(seed, samples_ * classes_, 0.0F);
    for (int64_t n = 0; n < samples_; ++n) seed[n * classes_ + labels[n]] = share;
    backward_.bind(DNNL_ARG_DIFF_SRC, dlogits);
    backward_.run();
  }

  void predict(const float* logits, int64_t count, int32_t* predictions) override {
    for (int64_t n = 0; n < count; ++n) {
      const float* row = logits + n * classes_;
      // max_element keeps the first of equal ones
      predictions[n] = static_cast<int32_t>(std::max_element(row, row + classes_) - row);
    }
  }

 private:
  CpuCrossEntropy(Shared& shared, const CrossEntropyShape& shape, const Plans& plans)
      : samples_(shape.samples),
        classes_(shape.classes),
        forward_(shared, dnnl::logsoftmax_forward(plans.forward), plans.forward.scratchpad_desc(),
                 {{DNNL_ARG_SRC, plans.rows}, {DNNL_ARG_DST, plans.rows}}),
        backward_(shared, dnnl::logsoftmax_backward(plans.backward),
                  plans.backward.scratchpad_desc(),
                  {{DNNL_ARG_DST, plans.rows},
                   {DNNL_ARG_DIFF_DST, plans.rows},
                   {DNNL_ARG_DIFF_SRC, plans.rows}}),
        log_softmax_(allocate(floats_of(plans.rows))),
        seed_(allocate(floats_of(plans.rows))) {
    forward_.bind(DNNL_ARG_DST, log_softmax_.data());
    backward_.bind(DNNL_ARG_DST, log_softmax_.data());
    backward_.bind(DNNL_ARG_DIFF_DST, seed_.data());
  }

  int64_t samples_;
  int64_t classes_;
  Primitive forward_;
  Primitive backward_;
  Buffer log_softmax_;
  Buffer seed_;
};

}  // namespace

std::unique_ptr<CrossEntropy> make_cross_entropy(Shared& shared, const CrossEntropyShape& shape) {
  return std::make_unique<CpuCrossEntropy>(shared, shape);
}

}  // namespace pushpull::ops::cpu
