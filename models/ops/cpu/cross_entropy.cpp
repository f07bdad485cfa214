// Cross-entropy as a plain loop: it is a thousandth of a step, and oneDNN's log-softmax is off by a
// millionth (its exp(0) is not 1), which shows as a negative loss. Results of exp and log depend on
// the C library, so numerics_fingerprint() names it.
#include <algorithm>
#include <cmath>

#include "common/base/error.h"
#include "models/ops/cpu/operations.h"

namespace pushpull::ops::cpu {

namespace {

class CpuCrossEntropy final : public CrossEntropy {
 public:
  explicit CpuCrossEntropy(const CrossEntropyShape& shape)
      : samples_(shape.samples),
        classes_(shape.classes),
        softmax_(allocate(static_cast<size_t>(shape.samples * shape.classes))) {}

  void forward(const Activation* logits, const int32_t* labels, int64_t count,
               float* losses) override {
    PP_ASSERT(count >= 0 && count <= samples_);
    for (int64_t n = 0; n < count; ++n) {
      const float* x = floats(logits) + n * classes_;
      float* p = softmax_.data() + n * classes_;
      const float top = *std::max_element(x, x + classes_);
      double sum = 0.0;  // includes exp(0) = 1: no overflow, no log of 0
      for (int64_t m = 0; m < classes_; ++m) {
        p[m] = std::exp(x[m] - top);
        sum += static_cast<double>(p[m]);
      }
      for (int64_t m = 0; m < classes_; ++m) {
        p[m] = static_cast<float>(static_cast<double>(p[m]) / sum);
      }
      const double distance = static_cast<double>(top) - static_cast<double>(x[labels[n]]);
      losses[n] = static_cast<float>(distance + std::log(sum));
    }
  }

  void backward(const int32_t* labels, Activation* dlogits) override {
    const float share = 1.0F / static_cast<float>(samples_);
    for (int64_t n = 0; n < samples_; ++n) {
      const float* p = softmax_.data() + n * classes_;
      float* d = floats(dlogits) + n * classes_;
      for (int64_t m = 0; m < classes_; ++m) d[m] = p[m] * share;
      d[labels[n]] = (p[labels[n]] - 1.0F) * share;
    }
  }

  void predict(const Activation* logits, int64_t count, int32_t* predictions) override {
    for (int64_t n = 0; n < count; ++n) {
      const float* row = floats(logits) + n * classes_;
      // max_element returns the first of equal ones
      predictions[n] = static_cast<int32_t>(std::max_element(row, row + classes_) - row);
    }
  }

 private:
  int64_t samples_;
  int64_t classes_;
  Buffer softmax_;  // of the latest forward
};

}  // namespace

std::unique_ptr<CrossEntropy> make_cross_entropy(const CrossEntropyShape& shape) {
  return std::make_unique<CpuCrossEntropy>(shape);
}

}  // namespace pushpull::ops::cpu
