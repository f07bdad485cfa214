#include "tests/models/queued_backend.h"

#include <cstring>
#include <string>
#include <utility>

#include "models/ops/operation.h"

namespace pushpull {

namespace {

using ops::Activation;

constexpr int64_t kDeadlineMs = 60'000;

// The stream that operations are queued on, and the CPU backend that runs them in turn.
struct Queued {
  std::shared_ptr<device::Device> device;
  std::unique_ptr<ops::Backend> cpu;
  std::unique_ptr<device::Stream> stream;

  template <class Run>
  void put(Run run) {
    device::enqueue(*stream, [this, run = std::move(run)] {
      const ops::Backend::Scope scope(*cpu);
      run();
    });
  }
};

template <class Op>
class On : public Op {
 public:
  On(Queued& queued, std::unique_ptr<Op> op) : queued_(queued), op_(std::move(op)) {}

 protected:
  template <class Run>
  void put(Run run) {
    queued_.put([op = op_, run] { run(*op); });
  }
  Queued& queued_;
  std::shared_ptr<Op> op_;  // queued operations hold it too
};

class QueuedLinear final : public On<ops::Linear> {
 public:
  using On::On;
  void forward(const Activation* x, const float* w, const float* b, Activation* y) override {
    put([=](ops::Linear& op) { op.forward(x, w, b, y); });
  }
  void backward_weights(const Activation* x, const Activation* y, Activation* dy, float* dw,
                        float* db) override {
    put([=](ops::Linear& op) { op.backward_weights(x, y, dy, dw, db); });
  }
  void backward_data(const Activation* dy, const float* w, Activation* dx) override {
    put([=](ops::Linear& op) { op.backward_data(dy, w, dx); });
  }
};

class QueuedConvolution final : public On<ops::Convolution> {
 public:
  using On::On;
  void forward(const Activation* x, const float* w, const float* b, Activation* y) override {
    put([=](ops::Convolution& op) { op.forward(x, w, b, y); });
  }
  void backward_weights(const Activation* x, const Activation* dy, float* dw, float* db) override {
    put([=](ops::Convolution& op) { op.backward_weights(x, dy, dw, db); });
  }
  void backward_data(const Activation* dy, const float* w, Activation* dx) override {
    put([=](ops::Convolution& op) { op.backward_data(dy, w, dx); });
  }
};

class QueuedBatchNorm final : public On<ops::BatchNorm> {
 public:
  using On::On;
  void forward(const Activation* x, const float* scale, const float* shift, float* mean,
               float* variance, Activation* y) override {
    put([=](ops::BatchNorm& op) { op.forward(x, scale, shift, mean, variance, y); });
  }
  void infer(const Activation* x, const float* scale, const float* shift, const float* mean,
             const float* variance, Activation* y) override {
    put([=](ops::BatchNorm& op) { op.infer(x, scale, shift, mean, variance, y); });
  }
  void backward(const Activation* x, const Activation* dy, const float* scale, const float* shift,
                Activation* dx, float* dscale, float* dshift) override {
    put([=](ops::BatchNorm& op) { op.backward(x, dy, scale, shift, dx, dscale, dshift); });
  }
};

class QueuedMaxPool final : public On<ops::MaxPool> {
 public:
  using On::On;
  void forward(const Activation* x, Activation* y) override {
    put([=](ops::MaxPool& op) { op.forward(x, y); });
  }
  void backward(const Activation* dy, Activation* dx) override {
    put([=](ops::MaxPool& op) { op.backward(dy, dx); });
  }
};

class QueuedRelayout final : public On<ops::Relayout> {
 public:
  using On::On;
  void to_plain(const Activation* native, Activation* plain) override {
    put([=](ops::Relayout& op) { op.to_plain(native, plain); });
  }
  void to_native(const Activation* plain, Activation* native) override {
    put([=](ops::Relayout& op) { op.to_native(plain, native); });
  }
};

class QueuedElements final : public On<ops::Elements> {
 public:
  using On::On;
  const Activation* in(const float* floats) override { return op_->in(floats); }  // f32: no copy
  void out(const Activation* activations, float* floats) override {
    put([=](ops::Elements& op) { op.out(activations, floats); });
  }
};

class QueuedCrossEntropy final : public On<ops::CrossEntropy> {
 public:
  using On::On;
  void forward(const Activation* logits, const int32_t* labels, int64_t count,
               float* losses) override {
    put([=](ops::CrossEntropy& op) { op.forward(logits, labels, count, losses); });
  }
  void backward(const int32_t* labels, Activation* dlogits) override {
    put([=](ops::CrossEntropy& op) { op.backward(labels, dlogits); });
  }
  void predict(const Activation* logits, int64_t count, int32_t* predictions) override {
    put([=](ops::CrossEntropy& op) { op.predict(logits, count, predictions); });
  }
};

class QueuedOperation final : public ops::Operation {
 public:
  QueuedOperation(Queued& queued, std::unique_ptr<ops::Operation> op)
      : queued_(queued), op_(std::move(op)) {}

  ops::Needs needs() const override { return op_->needs(); }
  void forward(const ops::Run& run) override {
    queued_.put([op = op_, run] { op->forward(run); });
  }
  void backward_weights(const ops::Run& run) override {
    queued_.put([op = op_, run] { op->backward_weights(run); });
  }
  void backward_data(const ops::Run& run) override {
    queued_.put([op = op_, run] { op->backward_data(run); });
  }
  const void* view(const ops::Run& run) override { return op_->view(run); }  // f32: no copy

 private:
  Queued& queued_;
  std::shared_ptr<ops::Operation> op_;  // queued runs hold it too
};

class QueuedBackend final : public ops::Backend {
 public:
  QueuedBackend(std::shared_ptr<device::Device> device, int threads)
      : queued_{std::move(device), ops::make_cpu_backend(threads), nullptr} {
    queued_.stream = queued_.device->stream();
  }

  ops::Buffer allocate(size_t floats) override {
    return ops::Buffer(queued_.device->allocate(floats * sizeof(float)));
  }
  size_t image_floats(const ops::ImageShape& shape, ops::Layout layout) const override {
    return queued_.cpu->image_floats(shape, layout);
  }
  void write(const void* host, size_t bytes, void* to) override {
    queued_.stream->copy_in(host, bytes, to);
    queued_.stream->synchronize(kDeadlineMs);
  }
  void read(const void* from, size_t bytes, void* host) override {
    queued_.stream->copy_out(from, bytes, host);
    queued_.stream->synchronize(kDeadlineMs);
  }
  std::shared_ptr<device::Device> device() const override { return queued_.device; }
  device::Stream& stream() override { return *queued_.stream; }

  std::string numerics() const override { return "queued " + queued_.cpu->numerics(); }
  // Pretends that there is a choice: the first one, unless another is set.
  std::string choices() const override { return choices_; }
  void choose(const std::string& choices) override { choices_ = choices; }

  std::unique_ptr<ops::Operation> plan(const ops::Spec& spec) override {
    return std::make_unique<QueuedOperation>(queued_, queued_.cpu->plan(spec));
  }
  std::unique_ptr<ops::Linear> linear(const ops::LinearShape& shape) override {
    return make<QueuedLinear>(ops::make_linear(*queued_.cpu, shape));
  }
  std::unique_ptr<ops::Convolution> convolution(const ops::ConvolutionShape& shape) override {
    return make<QueuedConvolution>(ops::make_convolution(*queued_.cpu, shape));
  }
  std::unique_ptr<ops::BatchNorm> batch_norm(const ops::BatchNormShape& shape) override {
    return make<QueuedBatchNorm>(ops::make_batch_norm(*queued_.cpu, shape));
  }
  std::unique_ptr<ops::MaxPool> max_pool(const ops::MaxPoolShape& shape) override {
    return make<QueuedMaxPool>(ops::make_max_pool(*queued_.cpu, shape));
  }
  std::unique_ptr<ops::Relayout> relayout(const ops::ImageShape& shape) override {
    return make<QueuedRelayout>(ops::make_relayout(*queued_.cpu, shape));
  }
  std::unique_ptr<ops::Elements> elements(int64_t count) override {
    return make<QueuedElements>(ops::make_elements(*queued_.cpu, count));
  }
  std::unique_ptr<ops::CrossEntropy> cross_entropy(const ops::CrossEntropyShape& shape) override {
    return make<QueuedCrossEntropy>(ops::make_cross_entropy(*queued_.cpu, shape));
  }

 private:
  int enter() override { return 0; }
  void leave(int /*saved*/) override {}

  template <class Wrapper, class Op>
  std::unique_ptr<Wrapper> make(std::unique_ptr<Op> op) {
    return std::make_unique<Wrapper>(queued_, std::move(op));
  }

  Queued queued_;
  std::string choices_ = "first";
};

}  // namespace

std::unique_ptr<ops::Backend> make_queued_backend(std::shared_ptr<device::Device> device,
                                                  int threads) {
  return std::make_unique<QueuedBackend>(std::move(device), threads);
}

}  // namespace pushpull
