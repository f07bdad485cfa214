// Fields of floats as activations: nothing is copied unless activations are bf16.
#include "models/ops/elements.h"

#include <algorithm>

#include "models/ops/cpu/operations.h"
#include "models/ops/cpu/split.h"

namespace pushpull::ops::cpu {

namespace {

class CpuElements final : public Operation {
 public:
  Needs needs() const override { return {.is_view = true}; }
  void forward(const Run& /*run*/) override {}
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& /*run*/) override {}
};

class CpuShortElements final : public Operation {
 public:
  explicit CpuShortElements(int64_t count) : count_(count) {}
  Needs needs() const override { return {}; }
  void forward(const Run& run) override {
    in_ranges(count_, kGrain, [&run](int64_t begin, int64_t end) {
      narrow(run.x[0].floats() + begin, end - begin, elements<Bf16>(run.y) + begin);
    });
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& /*run*/) override {}

 private:
  int64_t count_;
};

// The interface of ops.h.
class OldElements final : public Elements {
 public:
  explicit OldElements(int64_t count) : count_(count) {}
  const Activation* in(const float* from) override { return from; }
  void out(const Activation* activations, float* to) override {
    std::copy_n(static_cast<const float*>(activations), count_, to);
  }

 private:
  int64_t count_;
};

class OldShortElements final : public Elements {
 public:
  explicit OldShortElements(int64_t count)
      : count_(count), in_(allocate(static_cast<size_t>(count + 1) / 2)) {}
  const Activation* in(const float* from) override {
    narrow(from, count_, reinterpret_cast<Bf16*>(in_.data()));
    return in_.data();
  }
  void out(const Activation* activations, float* to) override {
    widen(static_cast<const Bf16*>(activations), count_, to);
  }

 private:
  int64_t count_;
  Buffer in_;
};

}  // namespace

std::unique_ptr<Operation> make_elements(Shared& shared, const Spec& spec) {
  if (shared.activation == Type::f32) return std::make_unique<CpuElements>();
  return std::make_unique<CpuShortElements>(spec_as<ElementsSpec>(spec).shape().size());
}

std::unique_ptr<Elements> make_elements(Shared& shared, int64_t count) {
  if (shared.activation == Type::f32) return std::make_unique<OldElements>(count);
  return std::make_unique<OldShortElements>(count);
}

}  // namespace pushpull::ops::cpu
