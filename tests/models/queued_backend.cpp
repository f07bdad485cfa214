#include "tests/models/queued_backend.h"

#include <cstring>
#include <string>
#include <utility>

#include "models/ops/operation.h"

namespace pushpull {

namespace {

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

 private:
  int enter() override { return 0; }
  void leave(int /*saved*/) override {}

  Queued queued_;
  std::string choices_ = "queued first\n";
};

}  // namespace

std::unique_ptr<ops::Backend> make_queued_backend(std::shared_ptr<device::Device> device,
                                                  int threads) {
  return std::make_unique<QueuedBackend>(std::move(device), threads);
}

}  // namespace pushpull
